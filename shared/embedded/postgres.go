package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// How long a server may take to start and to stop; both take a second on a machine that has the time.
const (
	startLimit = 5 * time.Minute
	stopLimit  = 2 * time.Minute
)

// Superuser is the role that owns a new server.
const Superuser = "postgres"

// PostgresConfig says how a server runs. Only Dir is required.
type PostgresConfig struct {
	Dir      string            // everything of this server; made when it is not there, continued when it is
	Port     int               // on 127.0.0.1; 0 takes a free one
	Password string            // the superuser's; empty lets every local account in as anybody, which is for tests
	Durable  bool              // fsync: commits survive the machine, not only the process
	Log      io.Writer         // the server's log; nil writes Dir/postgres.log
	Settings map[string]string // more server parameters, and stronger than ours
}

// Postgres is one server, prepared or running.
type Postgres struct {
	Cmd  *exec.Cmd // to be started once, with Start; SIGINT stops it, in the middle of whatever its clients do
	Port int

	password string
	log      *os.File      // nil when the caller gave one
	exited   chan struct{} // closed when the process is gone; nil until StartPostgres
}

// PreparePostgres does everything but start the server: it finds or fetches PostgreSQL, makes the data directory or
// cleans up behind a crash on it, and chooses an ordinary account when we are root. It fails when a server already runs
// on the directory. For another start, prepare again.
func PreparePostgres(ctx context.Context, cfg PostgresConfig) (*Postgres, error) {
	p, err := prepare(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing PostgreSQL in %s: %w", cfg.Dir, err)
	}
	return p, nil
}

func prepare(ctx context.Context, cfg PostgresConfig) (*Postgres, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	who, err := ordinaryAccount()
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	bin, err := findBinaries(ctx, cache, fetch)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := makeData(ctx, bin, who, cache, data, cfg.Password); err != nil {
		return nil, err
	}
	if err := cleanUp(ctx, data); err != nil {
		return nil, err
	}
	p := &Postgres{Port: cfg.Port, password: cfg.Password}
	if p.Port == 0 {
		if p.Port, err = FreePort(); err != nil {
			return nil, err
		}
	}
	if cfg.Log == nil {
		if p.log, err = os.OpenFile(filepath.Join(dir, "postgres.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644); err != nil {
			return nil, err
		}
		cfg.Log = p.log
	}
	// Our caller's context is for the start; the server goes on.
	p.Cmd, err = bin.command(context.WithoutCancel(ctx), "postgres", who, data)
	if err != nil {
		return nil, err
	}
	p.Cmd.Args = append(p.Cmd.Args, arguments(p.Port, cfg)...)
	p.Cmd.Stdout, p.Cmd.Stderr = cfg.Log, cfg.Log
	return p, nil
}

// arguments are the server's parameters. They go on the command line so that a start with other ones needs no edit of
// files, and the last one wins.
func arguments(port int, cfg PostgresConfig) []string {
	args := []string{
		"-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", // a socket's path has a length limit, and nobody needs it
		"-c", "max_connections=300",
		"-c", "shared_buffers=64MB",
		"-c", "jit=off", // a misjudged short statement can spend its time on compiling itself
		"-c", "timezone=UTC",
		"-c", "dynamic_shared_memory_type=mmap", // files of the data directory: a killed server leaves nothing elsewhere
	}
	if !cfg.Durable {
		// Commits still reach the kernel, so they survive kill -9; without fsync a torn page cannot be told from
		// a lost one, so there is no use in full page images either.
		args = append(args, "-c", "fsync=off", "-c", "full_page_writes=off")
	}
	for name, value := range cfg.Settings {
		args = append(args, "-c", name+"="+value)
	}
	return args
}

// command is a program of PostgreSQL that works on data, as who. It sees nothing of our environment: a PGDATA or PGPORT
// there means another server.
func (b binaries) command(ctx context.Context, name string, who *syscall.Credential, data string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(b.dir, name))
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	// A server that is sent SIGQUIT ends its children and gives its shared memory back; SIGKILL would leave both to chance.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	quitWithParent(cmd.SysProcAttr)
	path, err := handOver(cmd, data)
	if err != nil {
		return nil, err
	}
	cmd.Args = append(cmd.Args, "-D", path)
	return cmd, nil
}

// StartPostgres starts a server and returns when it accepts connections.
func StartPostgres(ctx context.Context, cfg PostgresConfig) (*Postgres, error) {
	p, err := PreparePostgres(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := Start(p.Cmd); err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	p.exited = make(chan struct{})
	go func() {
		_ = p.Cmd.Wait() // how it ended stands in its log
		close(p.exited)
	}()
	readyCtx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	go func() {
		select {
		case <-p.exited:
			cancel() // nothing to wait for any more
		case <-readyCtx.Done():
		}
	}()
	if err := p.Ready(readyCtx); err != nil {
		return nil, errors.Join(err, p.Kill(), fmt.Errorf("the server's last words: %s", p.lastWords()))
	}
	return p, nil
}

// Ready waits until the server accepts connections. A server that recovers from a crash takes a while.
func (p *Postgres) Ready(ctx context.Context) error {
	for {
		conn, err := pgx.Connect(ctx, p.URL("postgres", Superuser, p.password))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for PostgreSQL on port %d: %w", p.Port, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// URL is the address of a database on this server, for a role with its password (which may be empty).
func (p *Postgres) URL(database, user, password string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(user, password),
		Host: "127.0.0.1:" + strconv.Itoa(p.Port), Path: "/" + database, RawQuery: "sslmode=disable",
	}
	if password == "" {
		u.User = url.User(user)
	}
	return u.String()
}

// Pid is the pid of a started server.
func (p *Postgres) Pid() int { return p.Cmd.Process.Pid }

// Stop breaks off what clients do, writes everything to disk and returns when the server is gone. Only for a server
// that StartPostgres started.
func (p *Postgres) Stop() error {
	if err := p.Cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping PostgreSQL: %w", err)
	}
	select {
	case <-p.exited:
		return p.closeLog()
	case <-time.After(stopLimit):
		return errors.Join(fmt.Errorf("stopping PostgreSQL: it did not end within %v and was killed", stopLimit), p.Kill())
	}
}

// Kill ends the server and all its backends with SIGKILL and returns when it is gone. Only for a server that
// StartPostgres started.
func (p *Postgres) Kill() error {
	select {
	case <-p.exited: // its pid may already be somebody else's
		return p.closeLog()
	default:
	}
	if err := KillTree(p.Pid()); err != nil {
		return err
	}
	<-p.exited
	return p.closeLog()
}

func (p *Postgres) closeLog() error {
	if p.log == nil {
		return nil
	}
	if err := p.log.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// lastWords is the end of the server's log, where it says why it did not start.
func (p *Postgres) lastWords() string {
	if p.log == nil {
		return "in the log that it was given"
	}
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}
