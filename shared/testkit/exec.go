package testkit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/paycast/shared/embedded"
)

// Process is a program of ours that runs as a process of its own, to be killed for real.
type Process struct {
	t      testing.TB
	cmd    *exec.Cmd
	stderr *Output
	exited chan struct{}
	err    error // how it ended, once exited is closed
	resume func() error
}

// Exec builds the main package pkg, an import path or one relative to the test, once per test binary, and starts it with
// exactly the environment env and the given arguments. At the end of the test it is killed, and when the test has failed
// its standard error is shown.
func Exec(t testing.TB, pkg string, env map[string]string, args ...string) *Process {
	t.Helper()
	once, _ := built.LoadOrStore(pkg, sync.OnceValues(func() (string, error) { return build(pkg) }))
	program, err := once.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, cmd: exec.CommandContext(t.Context(), program, args...), stderr: &Output{}, exited: make(chan struct{})}
	p.cmd.Env = []string{} // nil would mean ours
	for name, value := range env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	p.cmd.Stdout, p.cmd.Stderr = p.stderr, p.stderr
	if err := embedded.Start(p.cmd); err != nil {
		t.Fatalf("starting %s: %v", pkg, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s %s wrote:\n%s", pkg, strings.Join(args, " "), p.Stderr())
		}
	})
	return p
}

var built sync.Map // package → func() (program, error)

func build(pkg string) (string, error) {
	parent, err := scratch()
	if err != nil {
		return "", err
	}
	into, err := os.MkdirTemp(parent, "bin-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(into, "program")
	if out, err := exec.CommandContext(context.Background(), "go", "build", "-buildvcs=false", "-o", program, pkg).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return program, nil
}

// WaitReady waits until the process answers 200 at /readyz of its ops address, host:port.
func (p *Process) WaitReady(opsAddr string, within time.Duration) {
	p.t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	Eventually(p.t, within, func() error {
		select {
		case <-p.exited:
			p.t.Fatalf("the process ended before it was ready: %v", p.err)
		default:
		}
		request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+opsAddr+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz answers %s", response.Status)
		}
		return nil
	})
}

// Pid is the process's pid.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Stderr is what the process has written so far, to standard output and error.
func (p *Process) Stderr() string { return p.stderr.String() }

// Kill ends the process with SIGKILL and returns when it is gone.
func (p *Process) Kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	<-p.exited
	p.Resume() // only to end the waker
}

// Term asks the process to end, with SIGTERM, and returns its error: nil when it ended with exit code 0.
func (p *Process) Term(within time.Duration) error {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	return p.Wait(within)
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.exited }

// Wait waits for the process to end by itself and returns its error: nil when it ended with exit code 0.
func (p *Process) Wait(within time.Duration) error {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	select {
	case <-p.exited:
		return p.err
	case <-ctx.Done():
		p.t.Fatalf("the process did not end within %v", within)
		return nil
	}
}

// Pause stops the process with SIGSTOP until Resume: it holds what it holds and does nothing.
func (p *Process) Pause() {
	p.t.Helper()
	var err error
	if p.resume, err = embedded.Pause(p.Pid()); err != nil {
		p.t.Fatal(err)
	}
}

// Resume ends Pause.
func (p *Process) Resume() {
	p.t.Helper()
	if p.resume == nil {
		return
	}
	if err := p.resume(); err != nil {
		p.t.Fatal(err)
	}
	p.resume = nil
}

func (p *Process) signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("sending %v: %v", sig, err)
	}
}
