package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	fetcher "github.com/fergusstrange/embedded-postgres"
)

// The versions of PostgreSQL: the one that is fetched, and the oldest one that may stand in for it.
const (
	postgresVersion = fetcher.V18
	oldestMajor     = 15
)

// binaries is an installed PostgreSQL.
type binaries struct {
	dir     string // holds initdb and postgres
	version string // as the server says it, such as "18.3"
}

// retryFetch is how long a failed fetch is not tried again while another PostgreSQL will do. Without a network each try
// can take half a minute, and each test binary would make one.
const retryFetch = 10 * time.Minute

// findBinaries returns the fetched PostgreSQL, fetching it the first time, or else the newest one on the machine. Many
// processes may ask at the same time: one fetches, the others wait for it.
func findBinaries(ctx context.Context, cache string, fetch func(ctx context.Context, dir string) error) (binaries, error) {
	home := filepath.Join(cache, "postgres-"+string(postgresVersion))
	fetched, err := inspect(ctx, filepath.Join(home, "bin"))
	if err == nil {
		return fetched, nil
	}
	failed := filepath.Join(cache, "fetch-failed")
	installed, found := newestInstalled(ctx)
	if info, err := os.Stat(failed); err == nil && found && time.Since(info.ModTime()) < retryFetch {
		return installed, nil
	}
	if err = once(cache, home, func(tmp string) error { return fetch(ctx, tmp) }); err == nil {
		if fetched, err = inspect(ctx, filepath.Join(home, "bin")); err == nil { // or it is for another libc
			return fetched, nil
		}
	}
	if found {
		return installed, os.WriteFile(failed, []byte(err.Error()), 0o644)
	}
	return binaries{}, fmt.Errorf("no PostgreSQL to run: install PostgreSQL %d or newer (on Debian: apt-get install postgresql), "+
		"or let this machine reach its Maven repository so that PostgreSQL %s can be fetched: %w", oldestMajor, postgresVersion, err)
}

// fetch downloads PostgreSQL and unpacks it into dir.
//
// The library does both inside its Start, and then starts a server as our own user, which PostgreSQL refuses to root.
// So it gets a data directory that is too empty to start on, and what counts is the file that we came for.
func fetch(ctx context.Context, dir string) error {
	work := filepath.Join(filepath.Dir(dir), "fetch")
	if err := os.RemoveAll(work); err != nil { // of a killed one
		return err
	}
	data, unpacked := filepath.Join(work, "data"), filepath.Join(work, "postgres")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	major, _, _ := strings.Cut(string(postgresVersion), ".")
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(major), 0o600); err != nil {
		return err
	}
	port, err := FreePort()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { // the library takes no context, and it panics when its files vanish: it is left alone until it is done
		defer func() { _ = os.RemoveAll(work) }()
		startErr := fetcher.NewDatabase(fetcher.DefaultConfig().
			Version(postgresVersion).Port(uint32(port)).Logger(io.Discard).
			CachePath(filepath.Join(work, "archive")).RuntimePath(filepath.Join(work, "run")).
			BinariesPath(unpacked).DataPath(data)).Start()
		if _, err := os.Stat(filepath.Join(unpacked, "bin", "postgres")); err != nil {
			done <- errors.Join(startErr, err)
			return
		}
		done <- errors.Join(readableByAll(unpacked), os.Rename(unpacked, dir))
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("fetching PostgreSQL %s: %w", postgresVersion, err)
	}
	return nil
}

// newestInstalled looks where distributions and installers put PostgreSQL, and on the PATH.
func newestInstalled(ctx context.Context) (newest binaries, ok bool) {
	var dirs []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/opt/homebrew/opt/postgresql@*/bin"} {
		found, _ := filepath.Glob(pattern) // fails only on a malformed pattern
		dirs = append(dirs, found...)
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	best := 0
	for _, dir := range dirs {
		b, err := inspect(ctx, dir)
		if err == nil && b.major() >= oldestMajor && b.major() > best {
			newest, best = b, b.major()
		}
	}
	return newest, best > 0
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)(\.\d+)*`)

// inspect asks the server in dir for its version, which also shows that it runs on this machine.
func inspect(ctx context.Context, dir string) (binaries, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return binaries{}, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").CombinedOutput()
	if err != nil {
		return binaries{}, fmt.Errorf("running postgres --version: %w: %s", err, out)
	}
	match := versionPattern.FindString(string(out))
	if match == "" {
		return binaries{}, fmt.Errorf("postgres --version says %q", out)
	}
	return binaries{dir: dir, version: strings.TrimPrefix(match, "(PostgreSQL) ")}, nil
}

func (b binaries) major() int {
	major, _, _ := strings.Cut(b.version, ".")
	n, _ := strconv.Atoi(major) // versionPattern lets only digits through
	return n
}
