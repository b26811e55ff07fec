package testkit

import (
	"os"
	"syscall"
)

// tempDir makes a directory in memory where there is room for it, and in the ordinary place otherwise. A new database
// is some hundred new files: 15 ms in memory, and 230 ms on the disk that this was measured on.
func tempDir() (string, error) {
	const memory, room = "/dev/shm", 1 << 30
	parent := ""
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err == nil && uint64(fs.Bavail)*uint64(fs.Bsize) > room {
		parent = memory
	}
	dir, err := os.MkdirTemp(parent, "paycast-test-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755) // PostgreSQL may run as another account
}
