package embedded

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Start starts cmd so that it ends when this process ends, however that happens (on Linux; elsewhere it is a plain
// start). The signal that ends it is cmd.SysProcAttr.Pdeathsig, SIGKILL if that is not set. It gets a process group of
// its own: Ctrl-C in a terminal reaches only us, and we stop our children in the right order.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	endWithParent(cmd.SysProcAttr)
	starter.once.Do(func() { starter.requests = make(chan startRequest); go startLoop(starter.requests) })
	request := startRequest{cmd, make(chan error)}
	starter.requests <- request
	return <-request.started
}

type startRequest struct {
	cmd     *exec.Cmd
	started chan error
}

var starter struct {
	once     sync.Once
	requests chan startRequest
}

// startLoop starts all children from one thread that never ends. To the kernel the parent is the thread and not the
// process: a child that was started from a thread which Go later ends would be killed while we live on.
func startLoop(requests <-chan startRequest) {
	runtime.LockOSThread()
	for r := range requests {
		r.started <- r.cmd.Start()
	}
}

// KillTree ends a process and its descendants with SIGKILL. PostgreSQL is a family of processes: one that loses only
// its head goes on for a moment, and that moment is not what a crash of the machine looks like.
func KillTree(pid int) error {
	return signalAll(family(pid), syscall.SIGKILL)
}

// SignalTree sends sig to a process and its descendants: SIGSTOP and SIGCONT, above all. A PostgreSQL whose head alone
// is stopped goes on serving. What is stopped when we die stays there, stopped; Pause sees to that as well.
func SignalTree(pid int, sig syscall.Signal) error {
	return signalAll(family(pid), sig)
}

// signalAll sends sig to each pid. A process that has ended meanwhile is no error.
func signalAll(pids []int, sig syscall.Signal) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && err != syscall.ESRCH {
			return fmt.Errorf("sending %v to process %d: %w", sig, pid, err)
		}
	}
	return nil
}
