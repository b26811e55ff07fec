package embedded

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// endWithParent asks the kernel to signal a child when the thread that starts it ends.
func endWithParent(attr *syscall.SysProcAttr) {
	if attr.Pdeathsig == 0 {
		attr.Pdeathsig = syscall.SIGKILL
	}
}

// quitWithParent makes the signal of endWithParent SIGQUIT.
func quitWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }

// canSeeProcesses: an empty answer of inside means that nobody is there.
const canSeeProcesses = true

// family returns pid and all its descendants. The head comes first and is stopped while the others are listed, so that
// it starts no more of them.
func family(pid int) []int {
	_ = syscall.Kill(pid, syscall.SIGSTOP) // gone already: then there is nobody to list
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		for _, child := range processes() {
			if parent(child) == pids[i] {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// inside returns the processes whose working directory is dir. Every process of a PostgreSQL server has its data
// directory as such.
func inside(dir string) []int {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil // no directory, nobody in it
	}
	var pids []int
	for _, pid := range processes() {
		if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil && cwd == real {
			pids = append(pids, pid)
		}
	}
	return pids
}

func processes() []int {
	entries, _ := os.ReadDir("/proc") // no /proc: no answer either way
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parent returns the parent's pid, or 0 when pid has ended.
func parent(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// pid (command) state ppid ...; the command may itself hold blanks and brackets.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}

// handOver lets cmd work on dir even when the account that it runs as may not pass through a directory above, which is
// common for root: a home directory, or what mktemp makes. The child gets our open descriptor in place of a path; it is
// the first one after the standard three, and the child's own children have it too.
func handOver(cmd *exec.Cmd, dir string) (path string, err error) {
	cmd.Dir = "/" // ours may be out of its reach as well
	if cmd.SysProcAttr.Credential == nil {
		return dir, nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return "", err
	}
	cmd.ExtraFiles = []*os.File{f}
	return "/proc/self/fd/3", nil
}
