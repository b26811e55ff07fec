package stage

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
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

func (p *process) words() string { return p.log.String() }

// usage is the largest resident set in bytes so far, and the CPU time. Both are 0 where there is no /proc.
func (p *process) usage() (peakRSS int, cpu time.Duration) {
	dir := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	status, _ := os.ReadFile(dir + "status")
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kB, _ := strconv.Atoi(fields[1])
			peakRSS = kB << 10
		}
	}
	stat, _ := os.ReadFile(dir + "stat")
	// After the command in brackets: state is field 3, user and system time are 14 and 15, in hundredths of a second.
	if fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(fields) > 12 {
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		cpu = time.Duration(user+system) * 10 * time.Millisecond
	}
	return peakRSS, cpu
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
