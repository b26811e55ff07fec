package stage

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Where there is no /proc, all figures of this file are 0.

// peakRSS is the largest resident set of a process so far, in bytes.
func peakRSS(pid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kB, _ := strconv.Atoi(fields[1])
			return kB << 10
		}
	}
	return 0
}

// cpu is what a process has used, with its children that have ended.
func cpu(pid int) time.Duration {
	fields := stat(pid)
	if len(fields) < 15 {
		return 0
	}
	hundredths := 0
	for _, f := range fields[11:15] { // user, system, and both for the children
		n, _ := strconv.Atoi(f)
		hundredths += n
	}
	return time.Duration(hundredths) * 10 * time.Millisecond
}

// familyCPU is cpu with the children that live: all of a PostgreSQL server.
func familyCPU(pid int) time.Duration {
	sum := cpu(pid)
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		child, _ := strconv.Atoi(filepath.Base(dir))
		if fields := stat(child); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			sum += cpu(child)
		}
	}
	return sum
}

// stat are the fields of a process from its state on; the command before it may hold blanks.
func stat(pid int) []string {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
}
