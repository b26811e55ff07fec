// Package fleet finds the processes of a running system and asks them.
//
// Promise: whatever NAME_OPS_URL stands in the environment, or in a stack's env file, is a process; no list of services
// stands anywhere else. A process that does not have an operation is left out of its answers, and one that cannot be
// asked is an error that says what to do next.
//
// The package does not own what the answers mean.
package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/service"
)

// DefaultFile is where a local stack writes its addresses.
const DefaultFile = ".run/env"

// Fleet is all processes that could be found.
type Fleet struct {
	Processes []Process // by name
	Brokers   string    // of Kafka; may be empty
	Source    string    // where the addresses come from, for people
}

// Process is one process with an operations side.
type Process struct {
	Name string
	ops.Client
}

const suffix = "_OPS_URL"

// Find reads the file, when one is given, or else the environment, or else DefaultFile. What the file does not say, such
// as a token that is kept apart, the environment may.
func Find(env service.Env, file string, timeout time.Duration) (Fleet, error) {
	f := Fleet{Source: "the environment"}
	if file == "" && !slices.ContainsFunc(names(env), isOps) {
		file = DefaultFile
		if _, err := os.Stat(file); err != nil {
			return f, fmt.Errorf("no process is known: there is neither a NAME%s in the environment nor a file %s; start a stack (make local), or name its file with --env FILE", suffix, DefaultFile)
		}
	}
	if file != "" {
		read, err := readFile(file)
		if err != nil {
			return f, err
		}
		addresses := slices.DeleteFunc(names(env), func(name string) bool { return !isOps(name) })
		for _, name := range addresses {
			delete(env, name) // another system's: the file speaks for all of its own
		}
		for name, value := range read {
			delete(env, name+"_FILE")
			env[name] = value
		}
		f.Source = file
	}
	token, _, err := env.Lookup("OPS_TOKEN")
	if err != nil {
		return f, err
	}
	f.Brokers = env["KAFKA_BROKERS"]
	client := &http.Client{Timeout: timeout}
	for _, name := range slices.Sorted(slices.Values(names(env))) {
		if !isOps(name) {
			continue
		}
		address := strings.TrimRight(env[name], "/")
		if u, err := url.Parse(address); err != nil || u.Host == "" {
			return f, fmt.Errorf("%s in %s is not an address such as http://127.0.0.1:9082", name, f.Source)
		}
		short := strings.ReplaceAll(strings.ToLower(strings.TrimSuffix(name, suffix)), "_", "-")
		f.Processes = append(f.Processes, Process{short, ops.Client{BaseURL: address, Token: token, HTTP: client}})
	}
	if len(f.Processes) == 0 {
		return f, fmt.Errorf("no process is known: %s holds no NAME%s", f.Source, suffix)
	}
	return f, nil
}

func isOps(name string) bool { return strings.HasSuffix(name, suffix) && name != suffix }

func names(env service.Env) (all []string) {
	for name := range env {
		all = append(all, name)
	}
	return all
}

func readFile(path string) (service.Env, error) {
	content, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the addresses: %w; a local stack writes the file when it is ready (make local)", err)
	}
	defer func() { _ = content.Close() }()
	env := service.Env{}
	lines := bufio.NewScanner(content)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if name, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			env[name] = value
		}
	}
	return env, lines.Err()
}

// Only narrows the fleet to one process; "" keeps all.
func (f Fleet) Only(name string) (Fleet, error) {
	if name == "" {
		return f, nil
	}
	var known []string
	for _, p := range f.Processes {
		if p.Name == name {
			f.Processes = []Process{p}
			return f, nil
		}
		known = append(known, p.Name)
	}
	return f, fmt.Errorf("there is no process %s; %s knows %s", name, f.Source, strings.Join(known, ", "))
}

// Answer is what one process said.
type Answer struct {
	From Process
	JSON json.RawMessage
	Err  error
}

// Ask asks all processes at once and returns the answers of those that have the operation.
func (f Fleet) Ask(ctx context.Context, path string, query url.Values) []Answer {
	answers := make([]Answer, len(f.Processes))
	var wg sync.WaitGroup
	for i, p := range f.Processes {
		wg.Go(func() {
			answers[i].From = p
			answers[i].Err = p.GetJSON(ctx, path, query, &answers[i].JSON)
		})
	}
	wg.Wait()
	return slices.DeleteFunc(answers, func(a Answer) bool { return ops.NoOperation(a.Err) })
}

// NotFound reports whether the process has the operation and not the thing.
func NotFound(err error) bool {
	var refused *ops.StatusError
	return errors.As(err, &refused) && refused.Status == http.StatusNotFound
}

// Explain says what to do about an answer that did not come or said no.
func (f Fleet) Explain(p Process, err error) error {
	var refused *ops.StatusError
	switch {
	case !errors.As(err, &refused):
		return fmt.Errorf("%s cannot be asked: %w; is it running (bin/paycast-local ps), and is %s of that system?", p.Name, err, f.Source)
	case ops.NoOperation(err):
		return fmt.Errorf("%s has no such operation: choose another process of those that payctl status shows, or its build is older than this payctl", p.Name)
	case refused.Status == http.StatusUnauthorized:
		return fmt.Errorf("%s refuses the token: OPS_TOKEN in %s is missing or another system's", p.Name, f.Source)
	}
	return fmt.Errorf("%s says: %w", p.Name, err)
}
