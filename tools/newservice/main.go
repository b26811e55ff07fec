package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 3 || os.Args[1] == "" || os.Args[2] == "" {
		fmt.Fprintln(os.Stderr, "usage: make new-service NAME=coupon EVENT=PaymentSucceeded")
		os.Exit(2)
	}
	root, err := findRoot()
	if err == nil {
		err = create(os.Stdout, root, os.Args[1], os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// create makes the service and writes to out what there is now.
func create(out io.Writer, root, name, event string) error {
	ports, err := alone(root, func(staged string) (portPair, error) {
		p, err := newPlan(root, name, event)
		if err != nil {
			return portPair{}, err
		}
		return p.ports, p.apply(staged)
	})
	if err != nil {
		if !errors.Is(err, errLeft) {
			err = fmt.Errorf("nothing was changed: %w", err)
		}
		return err
	}
	_, err = fmt.Fprintf(out, `services/%[1]s is there, group %[1]s, ports %[2]d and %[3]d. It takes part in make demo and in reconciliation.
  read first      docs/template.md: what to change, and what never to change
  its own page    docs/services/%[1]s.md
  its own tests   go test ./services/%[1]s/...
`, name, ports.http, ports.ops)
	return err
}

// findRoot is the first directory upwards that holds go.work and the template.
func findRoot() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; at = filepath.Dir(at) {
		_, work := os.Stat(filepath.Join(at, "go.work"))
		_, points := os.Stat(filepath.Join(at, template))
		if work == nil && points == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", errors.New("this is not inside a clone of paycast")
		}
	}
}
