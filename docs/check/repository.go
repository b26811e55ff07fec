package check

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Repository is what really exists.
type Repository struct {
	Root    string
	Targets map[string]bool            // make targets
	Symbols map[string]map[string]bool // package name → exported names, also Type.Method and Type.Field
	Tests   map[string]bool            // names of test functions
	words   map[string]bool            // of all Go, SQL, YAML, JSON and Makefile text
}

// Read walks the repository once.
func Read(root string) (*Repository, error) {
	r := &Repository{Root: root, Targets: map[string]bool{}, Symbols: map[string]map[string]bool{}, Tests: map[string]bool{}, words: map[string]bool{}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir():
			return nil
		case strings.HasSuffix(path, ".go"):
			return r.readGo(path)
		case d.Name() == "Makefile":
			return r.readMakefile(path)
		}
		switch filepath.Ext(path) {
		case ".sql", ".yaml", ".yml", ".json":
			return r.keep(path)
		}
		return nil
	})
	return r, err
}

func (r *Repository) keep(path string) error {
	content, err := os.ReadFile(path)
	r.learn(content)
	return err
}

var target = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)

func (r *Repository) readMakefile(path string) error {
	content, err := os.ReadFile(path)
	for _, m := range target.FindAllStringSubmatch(string(content), -1) {
		r.Targets[m[1]] = true
	}
	r.learn(content)
	return err
}

func (r *Repository) readGo(path string) error {
	if !strings.HasSuffix(path, "_test.go") {
		if err := r.keep(path); err != nil {
			return err
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	names := r.Symbols[file.Name.Name]
	if names == nil {
		names = map[string]bool{}
		r.Symbols[file.Name.Name] = names
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d.Recv.List[0].Type) + "." + name
			}
			names[name] = true
			r.Tests[name] = strings.HasSuffix(path, "_test.go")
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
					if st, ok := s.Type.(*ast.StructType); ok {
						for _, field := range st.Fields.List {
							for _, n := range field.Names {
								names[s.Name.Name+"."+n.Name] = true
							}
						}
					}
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names[n.Name] = true
					}
				}
			}
		}
	}
	return nil
}

func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

var word = regexp.MustCompile(`[A-Za-z0-9_]+`)

func (r *Repository) learn(content []byte) {
	for _, w := range word.FindAll(content, -1) {
		r.words[string(w)] = true
	}
}

// Mentions reports whether name stands as a whole word in the program, its configuration or its SQL.
func (r *Repository) Mentions(name string) bool { return r.words[name] }
