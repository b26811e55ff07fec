package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

var errLeft = errors.New("not all of it could be taken back; git status shows what is left")

// claim is a folder in the root that one run has for itself: two that plan at once would give the same ports, and the
// later would write compose.yaml without what the earlier has put there. Everything is staged in it, too.
const claim = ".new-service"

// alone runs do while no other run is in this tree. Signals come too late from here on: it takes a moment.
func alone[T any](root string, do func(staged string) (T, error)) (done T, err error) {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	staged := filepath.Join(root, claim)
	if err := os.Mkdir(staged, 0o755); errors.Is(err, fs.ErrExist) {
		return done, fmt.Errorf("%s is there: another run is under way, or one was killed. Then remove it, and what git status shows of its service", claim)
	} else if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staged)) }()
	return do(staged)
}

// apply writes everything beside its place and moves it there in a few renames. When one of them fails, the ones before
// it are taken back.
func (p *plan) apply(staged string) (err error) {
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
			err = fmt.Errorf("%w, and %w: %w", err, errLeft, left)
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
