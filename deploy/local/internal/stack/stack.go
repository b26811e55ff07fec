package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.com/paycast/deploy/local/internal/supervise"
)

// Config says what to bring up and where.
type Config struct {
	Root     string            // of the repository
	Bin      string            // where the binaries are
	Dir      string            // data, logs, secrets, control socket
	Kafka    string            // Real, or else kfake
	Search   string            // Real, or else the stand-in for Elasticsearch
	Postgres string            // URL of a server to use in place of our own; its user may create roles and databases
	Replicas map[string]int    // by process name; 1 where it says nothing
	Restart  bool              // start a process again that died
	Durable  bool              // commits in our own PostgreSQL survive the machine and not only the process
	Defaults map[string]string // environment of all programs, where the caller's own environment says nothing
	Report   func(Step)        // called when a step of the start is done, or takes long
	Deaths   io.Writer         // is told when a process dies
}

// Step is a line of progress.
type Step struct {
	Name    string        `json:"name"`
	Detail  string        `json:"detail"`
	Took    time.Duration `json:"took_ns"`
	Pending bool          `json:"pending,omitempty"` // not done yet
}

// Stack is a running paycast.
type Stack struct {
	cfg       Config
	services  []service
	secrets   secrets
	ports     ports
	admin     *url.URL // of the server
	databases map[string]database
	vars      map[string]string // what the env file holds

	set      supervise.Supervisor
	parts    []part
	running  []*supervise.Process // parts
	programs []*supervise.Process
	release  []func() // in order of acquisition
}

// Up returns when everything is ready. On an error nothing is left running.
func Up(ctx context.Context, cfg Config) (*Stack, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	cfg.Dir = dir
	s := &Stack{cfg: cfg, vars: map[string]string{}, databases: map[string]database{}}
	if err = s.plan(); err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		return nil, s.DownAfter(ctx, err)
	}
	return s, nil
}

// Down stops the programs, then the parts, and gives the directory back. Nothing runs any more when it returns.
func (s *Stack) Down() error {
	err := s.set.Shutdown(s.programs)
	for _, release := range slices.Backward(s.release) {
		release()
	}
	return err
}

// ErrInterrupted says that the caller's context ended first.
var ErrInterrupted = errors.New("interrupted")

// DownAfter is Down, and adds what goes wrong there to err. Whoever was interrupted is not told what that broke off.
func (s *Stack) DownAfter(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = ErrInterrupted
	}
	if down := s.Down(); down != nil {
		return errors.Join(err, down)
	}
	return err
}

// Vars are the addresses and secrets of the stack, by the names of the env file.
func (s *Stack) Vars() map[string]string { return s.vars }

// Do does what a verb of package supervise says to the named process.
func (s *Stack) Do(ctx context.Context, name, verb string) error {
	p, err := s.set.Find(name)
	if err != nil {
		return err
	}
	return p.Do(ctx, verb)
}

// AwaitReady waits until the named process is ready.
func (s *Stack) AwaitReady(ctx context.Context, name string) error {
	p, err := s.set.Find(name)
	if err != nil {
		return err
	}
	return p.AwaitReady(ctx)
}

// WriteEnv makes file appear with all variables, as KEY=value lines.
func (s *Stack) WriteEnv(file string) error {
	var lines []string
	for name, value := range s.vars {
		lines = append(lines, name+"="+value+"\n")
	}
	slices.Sort(lines)
	if err := writeWhole(file, []byte(strings.Join(lines, ""))); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return nil
}

// Dir is where the stack lives.
func (s *Stack) Dir() string { return s.cfg.Dir }

// Address is where something answers.
type Address struct{ Name, Main, Ops string }

// Addresses are those of the parts and of all programs.
func (s *Stack) Addresses() []Address {
	var all []Address
	for _, p := range s.parts {
		all = append(all, Address{Name: p.spec.Name, Main: p.label})
	}
	for _, p := range s.programs {
		a := Address{Name: p.Name, Ops: "ops " + httpURL(p.Ports[len(p.Ports)-1])}
		if len(p.Ports) > 1 {
			a.Main = httpURL(p.Ports[0])
		}
		all = append(all, a)
	}
	return all
}

// LastLines is the end of the named process's log.
func (s *Stack) LastLines(name string) string {
	p, err := s.set.Find(name)
	if err != nil {
		return err.Error()
	}
	return p.Tail(8)
}
