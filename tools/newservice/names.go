package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The name becomes a Go package, a folder, a program, a database with two roles, a Kafka group and environment names.
// What all of them take is this.
var nameForm = regexp.MustCompile(`^[a-z][a-z0-9]{2,29}$`)

// reserved names mean something to Go, to Postgres or to this tool's output.
var reserved = map[string]string{
	"main": "Go", "internal": "Go", "vendor": "Go", "testdata": "Go", "public": "Postgres", "none": "Postgres",
	"template0": "Postgres", "template1": "Postgres", "credits": "the template, as the unit of its accounts",
}

func checkName(root, name string, services []service) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("the name %q must be 3 to 30 lower-case letters and digits, a letter first: "+
			"it becomes a Go package, a database and a Kafka group", name)
	}
	if token.IsKeyword(name) || types.Universe.Lookup(name) != nil {
		return fmt.Errorf("%s means something in Go", name)
	}
	if owner, ok := reserved[name]; ok {
		return fmt.Errorf("%s means something to %s", name, owner)
	}
	for _, s := range services {
		if s.Name == name || s.Group == name {
			return fmt.Errorf("there is a service %s: services/%s", name, s.Name)
		}
		for _, p := range s.Processes {
			if p.Name == name {
				return fmt.Errorf("%s is a process of services/%s", name, s.Name)
			}
		}
	}
	for _, path := range []string{"services/" + name, "docs/services/" + name + ".md"} {
		if _, err := os.Lstat(filepath.Join(root, path)); err == nil {
			return fmt.Errorf("%s exists already: move it away, or choose another name", path)
		}
	}
	for _, parent := range []string{"shared", "deploy", "tools"} {
		if _, err := os.Stat(filepath.Join(root, parent, name)); err == nil {
			return fmt.Errorf("%s is the name of %s/%s", name, parent, name)
		}
	}
	used, err := identifiers(filepath.Join(root, template))
	if err != nil {
		return err
	}
	if used[name] {
		return fmt.Errorf("%s is a name inside the template's code, and a package of that name would hide it", name)
	}
	return checkEnvironment(root, name)
}

// identifiers are all names that the Go files below dir use.
func identifiers(dir string) (map[string]bool, error) {
	used := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				used[id.Name] = true
			}
			return true
		})
		return nil
	})
	return used, err
}

// checkEnvironment refuses a name whose addresses would stand in the environment under names that others read:
// a service called sms would take SMS_URL away from the SMS provider.
func checkEnvironment(root, name string) error {
	upper := strings.ToUpper(name)
	pattern := regexp.MustCompile(`\b` + upper + `_(OPS_|DATABASE_)?URLS?\b`)
	for _, top := range []string{"shared", "services", "deploy"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			switch filepath.Ext(path) {
			case ".go", ".yaml":
				text, err := os.ReadFile(path)
				if taken := pattern.Find(text); err == nil && taken != nil {
					rel, _ := filepath.Rel(root, path) // only for people
					err = fmt.Errorf("the environment has a %s of another meaning, read or set by %s", taken, rel)
				}
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkEvent looks the event up in the catalogue of shared/event.
func checkEvent(root, event string) error {
	path := filepath.Join(root, "shared", "event", "catalogue.go")
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "known" || len(spec.Values) != 1 {
			return true
		}
		if list, ok := spec.Values[0].(*ast.CompositeLit); ok {
			for _, e := range list.Elts {
				if pair, ok := e.(*ast.KeyValueExpr); ok {
					if key, ok := pair.Key.(*ast.Ident); ok {
						known[key.Name] = true
					}
				}
			}
		}
		return false
	})
	if !known[event] {
		return fmt.Errorf("there is no event %q; there are %s", event, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	return nil
}

// service is what this tool reads of a service.json.
type service struct {
	Name, Group string
	Processes   []struct {
		Name      string
		HTTP, Ops int
	}
}

func readServices(root string) ([]service, error) {
	files, err := filepath.Glob(filepath.Join(root, "services", "*", "service.json"))
	if err != nil {
		return nil, err
	}
	var all []service
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var s service
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		all = append(all, s)
	}
	return all, nil
}
