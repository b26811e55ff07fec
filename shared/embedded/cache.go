package embedded

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// cacheDir is where fetched binaries and ready data directories are kept. It must be readable by the account that runs
// PostgreSQL: root's own cache directory usually is not.
func cacheDir() (string, error) {
	dir := "/var/cache/paycast"
	if os.Geteuid() != 0 {
		home, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("finding a place for PostgreSQL: %w", err)
		}
		dir = filepath.Join(home, "paycast")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755) // whatever the umask
}

// Cached returns a directory of the cache, which build makes the first time. Others that come meanwhile wait for it, and
// a build that was cut off leaves nothing that looks finished.
func Cached(name string, build func(tmp string) error) (dir string, err error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(cache, name)
	return dir, once(cache, dir, build)
}

// once makes the directory dir, below cache, with build, unless it is there. Processes that come at the same time wait
// for the first. The directory appears complete or not at all, so a killed builder leaves nothing that looks finished.
func once(cache, dir string, build func(tmp string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // gives the lock back, as our death would
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	tmp := dir + ".new"
	if err := os.RemoveAll(tmp); err != nil { // of a killed builder
		return err
	}
	if err := build(tmp); err != nil {
		_ = os.RemoveAll(tmp)
		return err
	}
	return os.Rename(tmp, dir)
}

// readableByAll lets every account read and run what is below dir, whatever the umask was.
func readableByAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if entry.IsDir() || mode&0o100 != 0 {
			mode |= 0o111
		}
		return os.Chmod(path, mode)
	})
}
