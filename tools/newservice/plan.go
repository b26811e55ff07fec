package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// plan is everything that will change, worked out before anything does.
type plan struct {
	root  string
	name  string
	ports portPair
	files map[string][]byte // new ones, by path relative to the root
	edits []edited          // of files that are there, in this order
}

type edited struct {
	path          string
	before, after []byte
}

func newPlan(root, name, event string) (*plan, error) {
	services, err := readServices(root)
	if err != nil {
		return nil, err
	}
	if err := checkName(root, name, services); err != nil {
		return nil, err
	}
	if err := checkEvent(root, event); err != nil {
		return nil, err
	}
	p := &plan{root: root, name: name}
	compose, err := os.ReadFile(filepath.Join(root, "deploy/compose/compose.yaml"))
	if err != nil {
		return nil, err
	}
	if p.ports, err = nextPorts(services, string(compose)); err != nil {
		return nil, err
	}
	for _, e := range []struct {
		path string
		with func(string) (string, error)
	}{
		{"deploy/compose/compose.yaml", func(text string) (string, error) { return inCompose(text, name, p.ports) }},
		{"go.work", func(text string) (string, error) { return inWorkspace(text, name) }},
	} {
		before, err := os.ReadFile(filepath.Join(root, e.path))
		if err != nil {
			return nil, err
		}
		after, err := e.with(string(before))
		if err != nil {
			return nil, err
		}
		p.edits = append(p.edits, edited{e.path, before, []byte(after)})
	}
	if p.files, err = copied(root, name, event, p.ports); err != nil {
		return nil, fmt.Errorf("copying the template: %w", err)
	}
	return p, nil
}
