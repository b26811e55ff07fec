// Package realtest starts Apache Kafka and Elasticsearch themselves for tests. Its own tests, under the build tag real,
// hold the contracts of this repository against them.
package realtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/embedded"
	"example.com/paycast/shared/testkit"
)

// patience bounds a start on a busy machine, without the fetching.
const patience = 8 * time.Minute

// process is a server that the test can end and start again.
type process struct {
	t       *testing.T
	log     string
	command func(context.Context) (*exec.Cmd, error)
	ready   func() error

	cmd    *exec.Cmd
	exited chan struct{}
	resume func() error
}

func start(t *testing.T, command func(context.Context) (*exec.Cmd, error), ready func() error) *process {
	t.Helper()
	p := &process{t: t, log: filepath.Join(t.TempDir(), "log"), command: command, ready: ready}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			text, _ := os.ReadFile(p.log) // only to show its end
			t.Logf("the server wrote: ...%s", text[max(0, len(text)-4000):])
		}
	})
	p.Restart()
	return p
}

// Restart starts the server on its data and returns when it answers.
func (p *process) Restart() {
	p.t.Helper()
	p.Kill()
	cmd, err := p.command(context.WithoutCancel(p.t.Context())) // the first time it fetches
	require.NoError(p.t, err)
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(p.t, err)
	defer func() { _ = log.Close() }() // the server has its own descriptor
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(p.t, embedded.Start(cmd))
	exited := make(chan struct{})
	p.cmd, p.exited = cmd, exited
	go func() {
		_ = cmd.Wait() // how it ended is of no interest
		close(exited)
	}()
	testkit.Eventually(p.t, patience, func() error {
		select {
		case <-exited:
			p.t.Fatalf("the server has ended: %s", cmd.ProcessState)
		default:
		}
		return p.ready()
	})
}

// Kill ends the server and its children with SIGKILL.
func (p *process) Kill() {
	if p.running() {
		_ = embedded.KillTree(p.cmd.Process.Pid) // it may be ending at this moment
		<-p.exited
	}
	p.Resume() // only to end the waker
}

// Stop lets the server end in order.
func (p *process) Stop() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.exited:
	case <-time.After(patience):
		require.FailNow(p.t, "the server does not end")
	}
}

func (p *process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Pause stops the server where it is, until Resume.
func (p *process) Pause() {
	p.t.Helper()
	var err error
	p.resume, err = embedded.Pause(p.cmd.Process.Pid)
	require.NoError(p.t, err)
}

// Resume ends Pause.
func (p *process) Resume() {
	if p.resume != nil {
		_ = p.resume() // it may have been killed meanwhile
		p.resume = nil
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := embedded.FreePort()
	require.NoError(t, err)
	return port
}
