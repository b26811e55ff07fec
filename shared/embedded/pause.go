package embedded

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
)

// Pause stops a process and its descendants with SIGSTOP: their connections stand, and nothing answers. They go on when
// resume is called or when we end, however that happens: the signal that is to end them with us would otherwise wait for
// a SIGCONT that nobody sends.
func Pause(pid int) (resume func() error, err error) {
	pids := family(pid)
	if err := signalAll(pids, syscall.SIGSTOP); err != nil {
		return nil, err
	}
	waker := exec.CommandContext(context.Background(), "/bin/sh", "-c", `read -r _; kill -CONT "$@" 2>/dev/null; exit 0`, "sh")
	for _, pid := range pids {
		waker.Args = append(waker.Args, strconv.Itoa(pid))
	}
	waker.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is not for the waker
	input, err := waker.StdinPipe()                         // nobody writes to it; the waker waits for its end
	if err == nil {
		err = waker.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pausing process %d: %w", pid, err), signalAll(pids, syscall.SIGCONT))
	}
	return func() error {
		_ = input.Close() // fails only when it was closed before
		if err := waker.Wait(); err != nil {
			return fmt.Errorf("resuming process %d: %w", pid, err)
		}
		return nil
	}, nil
}
