package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
)

// apply writes everything beside its place and moves it there in a few renames. When one of them fails, the ones before
// it are taken back. Ctrl-C comes too late by then.
func (p *plan) apply() (err error) {
	signal.Ignore(os.Interrupt)
	staged, err := os.MkdirTemp(p.root, ".new-service-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staged)) }()
	for path, content := range p.files {
		if err := write(filepath.Join(staged, path), content, 0o644); err != nil {
			return err
		}
	}
	var undo []func() error
	defer func() {
		if err == nil {
			return
		}
		var left error
		for i := len(undo) - 1; i >= 0; i-- {
			left = errors.Join(left, undo[i]())
		}
		if left != nil {
			err = fmt.Errorf("%w; taking back what had been written failed too: %w", err, left)
		} else {
			err = fmt.Errorf("nothing was changed in the end: %w", err)
		}
	}()
	for _, path := range []string{"services/" + p.name, "docs/services/" + p.name + ".md"} {
		target := filepath.Join(p.root, path)
		if err := os.Rename(filepath.Join(staged, path), target); err != nil {
			return err
		}
		undo = append(undo, func() error { return os.RemoveAll(target) })
	}
	for _, e := range p.edits {
		if err := replace(staged, filepath.Join(p.root, e.path), e.after); err != nil {
			return err
		}
		undo = append(undo, func() error { return replace(staged, filepath.Join(p.root, e.path), e.before) })
	}
	return nil
}

// replace changes a file in one step and keeps its mode.
func replace(staged, path string, content []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	next := filepath.Join(staged, "next")
	if err := write(next, content, info.Mode().Perm()); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func write(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, mode)
}
