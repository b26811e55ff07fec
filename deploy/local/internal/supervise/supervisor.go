package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// restartDelay keeps a process that dies at once from filling the terminal and the log.
const restartDelay = time.Second

// Supervisor is the set of processes. The zero value is an empty one that keeps quiet.
type Supervisor struct {
	mu        sync.Mutex
	processes []*Process // in the order in which they were added
	report    io.Writer  // where deaths are told; nil until Watch
	restart   bool
	closing   bool
}

// Watch tells deaths on report from now on and, with restart, starts a process again that died. One that has died
// already is an error: during a start it is whoever starts that has to know.
func (s *Supervisor) Watch(report io.Writer, restart bool) error {
	s.mu.Lock()
	s.report, s.restart = report, restart
	s.mu.Unlock()
	var dead []error
	for _, p := range s.list() {
		if p.current() == Died {
			dead = append(dead, errors.New(p.Obituary()))
		}
	}
	return errors.Join(dead...)
}

// Add puts a process into the set without starting it.
func (s *Supervisor) Add(spec Spec) *Process {
	p := &Process{Spec: spec, died: s.died, state: Waiting, since: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes = append(s.processes, p)
	return p
}

// Find returns the process of that name.
func (s *Supervisor) Find(name string) (*Process, error) {
	var names []string
	for _, p := range s.list() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return nil, fmt.Errorf("no process is called %q; there are: %s", name, strings.Join(names, " "))
}

func (s *Supervisor) list() []*Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Process(nil), s.processes...)
}

// Statuses asks all processes at once.
func (s *Supervisor) Statuses(ctx context.Context) []Status {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	processes := s.list()
	all := make([]Status, len(processes))
	var wg sync.WaitGroup
	for i, p := range processes {
		wg.Go(func() { all[i] = p.Status(ctx) })
	}
	wg.Wait()
	return all
}

// died tells it, once for each death, and starts the process again where that is wanted.
func (s *Supervisor) died(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.report == nil {
		return
	}
	fmt.Fprintln(s.report, p.Obituary())
	if s.restart {
		time.AfterFunc(restartDelay, func() { s.revive(p) })
	}
}

func (s *Supervisor) revive(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock() // so that Shutdown sees it running or it sees the shutdown
	if s.closing || p.current() != Died {
		return
	}
	if err := p.Start(context.Background()); err != nil {
		fmt.Fprintln(s.report, err)
		return
	}
	fmt.Fprintf(s.report, "%s was started again\n", p.Name)
}

// Shutdown stops all processes of first at once, and then all others. Each gets its time to end in order, and is killed
// when it does not.
func (s *Supervisor) Shutdown(first []*Process) error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	return errors.Join(stopAll(first), stopAll(s.list()))
}

func stopAll(group []*Process) error {
	errs := make([]error, len(group))
	var wg sync.WaitGroup
	for i, p := range group {
		wg.Go(func() {
			if p.alive() != 0 {
				errs[i] = p.StopInOrder()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
