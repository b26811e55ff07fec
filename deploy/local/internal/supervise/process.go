package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"example.com/paycast/shared/embedded"
)

// State is what a process is, as `ps` shows it.
type State string

// The states; see the package's drawing.
const (
	Waiting State = "waiting"
	Running State = "running"
	Paused  State = "paused"
	Stopped State = "stopped"
	Killed  State = "killed"
	Died    State = "died"
)

// stopGrace is how long a process may take to end in order. It is longer than the grace that a service gives its own
// requests and loops.
const stopGrace = 25 * time.Second

// Spec says what a process is.
type Spec struct {
	Name    string
	Command func(context.Context) (*exec.Cmd, error) // a fresh one for each start
	Ready   func(context.Context) error              // nil once it does its work; the error says what is missing
	Stop    syscall.Signal                           // asks it to end in order; SIGTERM if it is not set
	Ports   []int
	Log     string // the file to which its output is appended
}

// Process is one named process over all its starts.
type Process struct {
	Spec
	died func(*Process) // told when it ends without being asked to

	verb sync.Mutex // one Start, Stop, Kill, Pause or Resume at a time

	mu       sync.Mutex // guards the rest
	state    State
	asked    State // the state that the end will have; Died until somebody asks for it
	pid      int
	since    time.Time // of the last start or end
	how      string    // the last end, such as "exit status 1"
	exited   chan struct{}
	logStart int64 // where the output of the last start begins
}

// Start starts the process and returns when it runs, which is before it is ready.
func (p *Process) Start(ctx context.Context) error {
	p.verb.Lock()
	defer p.verb.Unlock()
	if pid := p.alive(); pid != 0 {
		return fmt.Errorf("%s runs already, with pid %d", p.Name, pid)
	}
	cmd, err := p.Command(ctx)
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	end, err := log.Seek(0, 2)
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// The terminal sends Ctrl-C to a whole group. In groups of their own the processes end when and how we say.
	cmd.SysProcAttr.Setpgid = true
	if err := embedded.Start(cmd); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	exited := make(chan struct{})
	p.mu.Lock()
	p.state, p.asked, p.pid, p.since, p.how, p.exited, p.logStart = Running, Died, cmd.Process.Pid, time.Now(), "", exited, end
	p.mu.Unlock()
	go func() {
		_ = cmd.Wait() // the state says it
		p.ended(cmd.ProcessState.String())
		close(exited)
	}()
	return nil
}

func (p *Process) ended(how string) {
	p.mu.Lock()
	p.state, p.pid, p.since, p.how = p.asked, 0, time.Now(), how
	died := p.state == Died
	p.mu.Unlock()
	if died && p.died != nil {
		p.died(p)
	}
}

func (p *Process) current() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// alive returns the pid, or 0.
func (p *Process) alive() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Kill ends the process and its descendants with SIGKILL.
func (p *Process) Kill() error {
	p.verb.Lock()
	defer p.verb.Unlock()
	pid, exited, err := p.ask(Killed)
	if err != nil {
		return err
	}
	if err := embedded.KillTree(pid); err != nil {
		return err
	}
	<-exited
	return nil
}

// StopInOrder asks the process to end and waits for it. One that has not ended within 25 s is killed, and that is an
// error.
func (p *Process) StopInOrder() error {
	p.verb.Lock()
	defer p.verb.Unlock()
	paused := p.current() == Paused
	pid, exited, err := p.ask(Stopped)
	if err != nil {
		return err
	}
	sig := p.Stop
	if sig == 0 {
		sig = syscall.SIGTERM
	}
	_ = syscall.Kill(pid, sig) // it has just ended: then there is nobody to ask
	if paused {                // it gets the signal only when it goes on
		_ = embedded.SignalTree(pid, syscall.SIGCONT)
	}
	select {
	case <-exited:
		return nil
	case <-time.After(stopGrace):
		_ = embedded.KillTree(pid)
		<-exited
		return fmt.Errorf("%s did not stop within %s and was killed", p.Name, stopGrace)
	}
}

// ask notes why the process is about to end.
func (p *Process) ask(end State) (pid int, exited chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 {
		return 0, nil, fmt.Errorf("%s does not run: it is %s", p.Name, p.state)
	}
	p.asked = end
	return p.pid, p.exited, nil
}

// Pause stops the process and its descendants where they are, with SIGSTOP. Their connections stay open and silent.
func (p *Process) Pause() error { return p.switchState(Running, Paused, syscall.SIGSTOP) }

// Resume lets a paused process go on, as if no time had passed for it.
func (p *Process) Resume() error { return p.switchState(Paused, Running, syscall.SIGCONT) }

func (p *Process) switchState(from, to State, sig syscall.Signal) error {
	p.verb.Lock()
	defer p.verb.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != from {
		return fmt.Errorf("%s is %s, not %s", p.Name, p.state, from)
	}
	if err := embedded.SignalTree(p.pid, sig); err != nil {
		return err
	}
	p.state = to
	return nil
}

// AwaitReady waits until the process is ready. The error says why it is not, with the last log lines of a dead one.
func (p *Process) AwaitReady(ctx context.Context) error {
	p.mu.Lock()
	exited := p.exited
	p.mu.Unlock()
	var last error
	for {
		check, cancel := context.WithTimeout(ctx, 3*time.Second)
		err := p.Ready(check)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil { // a check that was cut off knows less than the one before it
			last = err
		}
		select {
		case <-exited:
			return errors.New(p.Obituary())
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return fmt.Errorf("waiting for %s: %w", p.Name, ctx.Err())
			}
			return fmt.Errorf("%s is not ready: %w\n%s", p.Name, last, p.Tail(tailLines))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Status is a process as `ps` shows it.
type Status struct {
	Name  string    `json:"name"`
	PID   int       `json:"pid"` // 0 when it does not run
	Ports []int     `json:"ports"`
	State State     `json:"state"`
	Ready bool      `json:"ready"`
	Since time.Time `json:"since"`
	Note  string    `json:"note,omitempty"` // why it is not ready, or how it ended
}

// Status asks the process whether it is ready, which takes up to the context's time for one that hangs.
func (p *Process) Status(ctx context.Context) Status {
	p.mu.Lock()
	s := Status{Name: p.Name, PID: p.pid, Ports: p.Ports, State: p.state, Since: p.since, Note: p.how}
	p.mu.Unlock()
	if s.State == Running {
		if err := p.Ready(ctx); err != nil {
			s.Note = err.Error()
		} else {
			s.Ready = true
		}
	}
	return s
}
