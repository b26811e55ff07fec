package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ordinaryAccount is who runs the server: nil for ourselves, and another account when we are root, which PostgreSQL
// refuses.
func ordinaryAccount() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and this machine has neither an account postgres nor nobody: " +
		"run paycast as an ordinary user")
}

// makeData makes the data directory unless it is there. initdb takes a second of work and gives the same result each
// time, so it runs once per version and account, and a new data directory is a copy.
func makeData(ctx context.Context, bin binaries, who *syscall.Credential, cache, data, password string) error {
	uid := os.Geteuid()
	if who != nil {
		uid = int(who.Uid)
	}
	if _, err := os.Stat(data); errors.Is(err, os.ErrNotExist) {
		ready := filepath.Join(cache, fmt.Sprintf("data-%s-uid%d", bin.version, uid))
		if err := once(cache, ready, func(tmp string) error { return initdb(ctx, bin, who, tmp) }); err != nil {
			return err
		}
		tmp := data + ".new"
		if err := os.RemoveAll(tmp); err != nil {
			return err
		}
		// -p keeps the owner and the modes, which the server checks.
		if out, err := exec.CommandContext(ctx, "cp", "-Rp", ready, tmp).CombinedOutput(); err != nil {
			return fmt.Errorf("copying a new data directory: %w: %s", err, out)
		}
		if password != "" {
			if err := setPassword(ctx, bin, who, tmp, password); err != nil {
				return err
			}
		}
		if err := os.Rename(tmp, data); err != nil {
			return err
		}
	}
	made, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if err != nil {
		return err
	}
	if major := strings.TrimSpace(string(made)); major != strconv.Itoa(bin.major()) {
		return fmt.Errorf("the data is of PostgreSQL %s, but PostgreSQL %s would run: remove it to start anew", major, bin.version)
	}
	method := "scram-sha-256"
	if password == "" {
		method = "trust"
	}
	access := fmt.Sprintf("host all all 127.0.0.1/32 %s\nhost replication all 127.0.0.1/32 %s\n", method, method)
	return os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(access), 0o600)
}

func initdb(ctx context.Context, bin binaries, who *syscall.Credential, data string) error {
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if who != nil {
		if err := os.Chown(data, int(who.Uid), int(who.Gid)); err != nil {
			return err
		}
	}
	// The C locale sorts alike everywhere. A small first WAL segment keeps a copy small.
	return run(ctx, bin, "initdb", who, data, "", "--username="+Superuser, "--auth=trust", "--encoding=UTF8", "--locale=C",
		"--no-sync", "--no-instructions")
}

// setPassword gives the superuser a password before anybody can connect.
func setPassword(ctx context.Context, bin binaries, who *syscall.Credential, data, password string) error {
	statement := fmt.Sprintf("ALTER ROLE %s PASSWORD '%s'\n", Superuser, strings.ReplaceAll(password, "'", "''"))
	return run(ctx, bin, "postgres", who, data, statement, "--single", "postgres")
}

// run runs a program of PostgreSQL on data to its end.
func run(ctx context.Context, bin binaries, name string, who *syscall.Credential, data, input string, args ...string) error {
	cmd, err := bin.command(ctx, name, who, data)
	if err != nil {
		return err
	}
	if len(args) > 0 && args[0] == "--single" { // must be the first argument
		args, cmd.Args = args[1:], append([]string{cmd.Args[0], "--single"}, cmd.Args[1:]...)
	}
	cmd.Args = append(cmd.Args, args...)
	cmd.Stdin = strings.NewReader(input)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := Start(cmd); err != nil {
		return fmt.Errorf("running %s: %w", name, err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("running %s: %w: %s", name, err, out.String())
	}
	return nil
}

// cleanUp removes what a crashed server left on its data directory: backends that have not noticed yet, and the pid file.
// PostgreSQL would do the latter too, unless the pid in it has become somebody else's.
func cleanUp(ctx context.Context, data string) error {
	pidFile := filepath.Join(data, "postmaster.pid")
	deadline := time.Now().Add(5 * time.Second)
	for {
		running := inside(data)
		if len(running) == 0 {
			break
		}
		head := postmaster(pidFile)
		alive := false
		for _, pid := range running {
			alive = alive || pid == head
		}
		sig := syscall.SIGKILL
		if alive {
			// The server of a process that has just died may be on its way out, and a stopped one cannot go it.
			sig = syscall.SIGCONT
		}
		if err := signalAll(running, sig); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("a server already runs there, with pid %d", head)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	if !canSeeProcesses { // then PostgreSQL itself decides
		return nil
	}
	if err := os.Remove(pidFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// postmaster reads the pid of the server's head from its pid file, 0 when there is none.
func postmaster(pidFile string) int {
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, _ := strconv.Atoi(first)
	return pid
}
