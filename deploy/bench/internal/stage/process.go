package stage

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"example.com/paycast/shared/embedded"
)

// process is this program in another role. It says "ready" on its standard output, and gets lines on its standard input.
type process struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	log    *tail
	exited chan struct{}
}

func (s *Stage) process(ctx context.Context, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self, args...), log: &tail{}, exited: make(chan struct{})}
	p.cmd.Stderr = p.log
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := embedded.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("starting %v: %w", args[:1], err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	go func() {
		_ = p.cmd.Wait() // how it ended stands in its log
		close(p.exited)
	}()
	if err != nil || line != Ready {
		p.kill()
		return nil, fmt.Errorf("starting %v: it wrote:\n%s", args[:1], p.words())
	}
	return p, nil
}

// Ready is what a process writes to its standard output when it can be told to go.
const Ready = "ready\n"

func (p *process) tell(line string) error {
	_, err := io.WriteString(p.input, line+"\n")
	return err
}

func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) words() string { return p.log.String() }

// term ends the process in its own way.
func (p *process) term() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		p.kill()
	}
}

// tail keeps the last words of a process.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-4000):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
