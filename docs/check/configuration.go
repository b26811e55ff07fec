package check

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Variable is a name that programs read from the environment.
type Variable struct {
	Readers  []string // words that stand for them in the document
	Defaults []string // those that stand beside the name; of others, which are set elsewhere, nothing is known
}

// Setting is the line of one name in docs/configuration.md.
type Setting struct {
	Name, ReadBy, Default, What string
}

var (
	variable = regexp.MustCompile(`^[A-Z][A-Z0-9_]+$`)
	settings = regexp.MustCompile("(?m)^\\| `([A-Z][A-Z0-9_]+)` \\| ([^|]*) \\| ([^|]*) \\| ([^|]*) \\|$")
)

// Variables are the names that the programs of services, shared, tools and deploy/world read: from `env` tags, or one by
// one. Programs that belong to a test are left out.
func Variables(root string) (map[string]*Variable, error) {
	found := map[string]*Variable{}
	for _, dir := range []string{"services", "shared", "tools", "deploy/world"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "testdata" || d.Name() == "subject"):
				return filepath.SkipDir
			case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if name, standard := read(n); variable.MatchString(name) {
					if found[name] == nil {
						found[name] = &Variable{}
					}
					found[name].add(reader(filepath.ToSlash(rel)), standard)
				}
				return true
			})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (v *Variable) add(reader, standard string) {
	if !slices.Contains(v.Readers, reader) {
		v.Readers = append(v.Readers, reader)
	}
	if standard != "" && !slices.Contains(v.Defaults, standard) {
		v.Defaults = append(v.Defaults, standard)
	}
}

// reader is the word for who runs a file's code: a service's name, or whoever embeds a configuration of shared.
func reader(file string) string {
	switch parts := strings.Split(file, "/"); {
	case parts[0] == "shared" && parts[1] == "consumer":
		return "consumers"
	case parts[0] == "shared" && parts[1] == "real":
		return "paycast-local"
	case parts[0] == "shared":
		return "every server"
	default:
		return parts[1]
	}
}

// read tells the name that a node reads, and the default that stands beside it.
func read(n ast.Node) (name, standard string) {
	switch n := n.(type) {
	case *ast.Field:
		if n.Tag != nil {
			tag := reflect.StructTag(text(n.Tag))
			name, _, _ = strings.Cut(tag.Get("env"), ",")
			return name, tag.Get("envDefault")
		}
	case *ast.IndexExpr: // env["NAME"]
		if of, ok := n.X.(*ast.Ident); ok && of.Name == "env" {
			return text(n.Index), ""
		}
	case *ast.CallExpr: // env.Lookup("NAME"), os.Getenv("NAME")
		if f, ok := n.Fun.(*ast.SelectorExpr); ok && len(n.Args) == 1 && slices.Contains([]string{"Lookup", "LookupEnv", "Getenv"}, f.Sel.Name) {
			return text(n.Args[0]), ""
		}
	}
	return "", ""
}

// text of a string as it is written in Go; "" of anything else.
func text(e ast.Expr) string {
	written, ok := e.(*ast.BasicLit)
	if !ok || written.Kind != token.STRING {
		return ""
	}
	s, err := strconv.Unquote(written.Value)
	if err != nil {
		return ""
	}
	return s
}

// Settings are the lines of the document's tables.
func Settings(document string) ([]Setting, error) {
	content, err := os.ReadFile(document)
	var found []Setting
	for _, m := range settings.FindAllStringSubmatch(string(content), -1) {
		found = append(found, Setting{m[1], m[2], m[3], m[4]})
	}
	return found, err
}

// SettingFaults says where code and document differ: a name without a line or with two, a line that names nothing, a
// reader that is left out, and another default than the one in the code.
func SettingFaults(code map[string]*Variable, document []Setting) []string {
	var faults []string
	lines := map[string]int{}
	for _, s := range document {
		lines[s.Name]++
		v := code[s.Name]
		if v == nil {
			faults = append(faults, fmt.Sprintf("%s has a line, and no program reads it", s.Name))
			continue
		}
		if s.ReadBy == "" || s.Default == "" || s.What == "" {
			faults = append(faults, fmt.Sprintf("the line of %s has an empty cell", s.Name))
		}
		for _, reader := range v.Readers {
			if !strings.Contains(s.ReadBy, reader) && !strings.Contains(s.ReadBy, "every server") {
				faults = append(faults, fmt.Sprintf("%s is read by %s, and its line says %q", s.Name, reader, s.ReadBy))
			}
		}
		for _, standard := range v.Defaults {
			if !strings.Contains(s.Default, "`"+standard+"`") {
				faults = append(faults, fmt.Sprintf("the default of %s is %s, and its line says %q", s.Name, standard, s.Default))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(code)) {
		if lines[name] != 1 {
			faults = append(faults, fmt.Sprintf("%s has %d lines and needs one; %s reads it", name, lines[name], strings.Join(code[name].Readers, " and ")))
		}
	}
	return faults
}
