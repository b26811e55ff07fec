package embedded

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func start(t *testing.T, cfg PostgresConfig) *Postgres {
	t.Helper()
	p, err := StartPostgres(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop()) })
	return p
}

func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // its server may be dead
	return conn
}

func ask[T any](t *testing.T, conn *pgx.Conn, query string) (answer T) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), query).Scan(&answer))
	return answer
}

func do(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), statement)
	require.NoError(t, err)
}

func TestPostgres18RunsAsAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	// Only its owner may enter this one, as with a home directory or what mktemp makes.
	private := filepath.Join(t.TempDir(), "private")
	require.NoError(t, os.Mkdir(private, 0o700))
	p := start(t, PostgresConfig{Dir: filepath.Join(private, "postgres")})

	conn := connect(t, p.URL("postgres", Superuser, ""))
	require.Equal(t, "18", strings.Split(ask[string](t, conn, "SHOW server_version"), ".")[0])
	require.Equal(t, "off", ask[string](t, conn, "SHOW fsync"))
	require.Equal(t, "off", ask[string](t, conn, "SHOW jit"))
	process, err := os.Stat(fmt.Sprintf("/proc/%d", p.Pid())) // belongs to the account that it runs as
	require.NoError(t, err)
	require.NotZero(t, process.Sys().(*syscall.Stat_t).Uid)
}

func TestCommittedRowsSurviveKill9(t *testing.T) {
	t.Parallel()
	cfg := PostgresConfig{Dir: t.TempDir()}
	p := start(t, cfg)
	conn := connect(t, p.URL("postgres", Superuser, ""))
	do(t, conn, "CREATE TABLE kept (n int)")
	do(t, conn, "INSERT INTO kept SELECT generate_series(1, 1000)")
	open := connect(t, p.URL("postgres", Superuser, ""))
	do(t, open, "BEGIN")
	do(t, open, "INSERT INTO kept VALUES (-1)")

	require.NoError(t, p.Kill())
	require.Error(t, conn.Ping(t.Context()))
	// The pid of the dead server may be somebody else's by now: here our own parent's, who lives.
	pidFile := filepath.Join(cfg.Dir, "data", "postmaster.pid")
	text, err := os.ReadFile(pidFile)
	require.NoError(t, err, "a killed server leaves its pid file")
	_, rest, _ := strings.Cut(string(text), "\n")
	require.NoError(t, os.WriteFile(pidFile, fmt.Appendf(nil, "%d\n%s", os.Getppid(), rest), 0o600))
	p = start(t, cfg)

	conn = connect(t, p.URL("postgres", Superuser, ""))
	require.Equal(t, 1000, ask[int](t, conn, "SELECT count(*) FROM kept"))
}

func TestTwoServersRunSideBySide(t *testing.T) {
	t.Parallel()
	a, b := start(t, PostgresConfig{Dir: t.TempDir()}), start(t, PostgresConfig{Dir: t.TempDir()})
	do(t, connect(t, a.URL("postgres", Superuser, "")), "CREATE TABLE mine (n int)")
	require.Nil(t, ask[*string](t, connect(t, b.URL("postgres", Superuser, "")), "SELECT to_regclass('mine')::text"))
	require.NoError(t, a.Stop())
	require.NoError(t, b.Ready(t.Context()))
}

func TestASecondServerOnOneDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	cfg := PostgresConfig{Dir: t.TempDir()}
	p := start(t, cfg)
	_, err := PreparePostgres(t.Context(), cfg)
	require.ErrorContains(t, err, "a server already runs there")
	require.NoError(t, p.Ready(t.Context()), "the first one was disturbed")
}

func TestAPasswordKeepsOthersOut(t *testing.T) {
	t.Parallel()
	p := start(t, PostgresConfig{Dir: t.TempDir(), Password: "it's a secret", Durable: true, Settings: map[string]string{"wal_level": "logical"}})
	conn := connect(t, p.URL("postgres", Superuser, "it's a secret"))
	require.Equal(t, "on", ask[string](t, conn, "SHOW fsync"))
	require.Equal(t, "logical", ask[string](t, conn, "SHOW wal_level"))
	for _, wrong := range []string{"", "secret"} {
		_, err := pgx.Connect(t.Context(), p.URL("postgres", Superuser, wrong))
		require.ErrorContains(t, err, "28P01")
	}
}

func TestAPausedServerAnswersNobodyAndThenGoesOn(t *testing.T) {
	t.Parallel()
	p := start(t, PostgresConfig{Dir: t.TempDir()})
	conn := connect(t, p.URL("postgres", Superuser, ""))
	resume, err := Pause(p.Pid())
	require.NoError(t, err)

	answered := make(chan error, 1)
	go func() { answered <- conn.Ping(context.Background()) }()
	select {
	case err := <-answered:
		t.Fatalf("the paused server answered: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	require.NoError(t, resume())
	require.NoError(t, <-answered)
}

func TestNothingOutlivesAKilledParent(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"postgres", "paused-postgres"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			parent := startChild(t, role+" "+dir)
			data := filepath.Join(dir, "data")
			require.NotEmpty(t, inside(data))

			kill(t, parent)

			require.Eventually(t, func() bool { return len(inside(data)) == 0 }, soon, 20*time.Millisecond)
			start(t, PostgresConfig{Dir: dir}) // and the directory is as good as before
		})
	}
}

func TestAServerThatACrashLeftStoppedIsEndedBeforeTheNextStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kill(t, startChild(t, "stopped-postgres "+dir))
	require.NotEmpty(t, inside(filepath.Join(dir, "data")))
	start(t, PostgresConfig{Dir: dir})
}

func TestOrphansOfACrashAreEndedBeforeTheNextStart(t *testing.T) {
	t.Parallel()
	cfg := PostgresConfig{Dir: t.TempDir()}
	p := start(t, cfg)
	connect(t, p.URL("postgres", Superuser, ""))
	_, err := Pause(p.Pid()) // a stopped backend does not notice that its server is dead
	require.NoError(t, err)
	require.NoError(t, p.Cmd.Process.Kill())
	<-p.exited
	require.NotEmpty(t, inside(filepath.Join(cfg.Dir, "data")))

	start(t, cfg)
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := StartPostgres(t.Context(), PostgresConfig{Dir: t.TempDir(), Settings: map[string]string{"no_such_setting": "1"}})
	require.ErrorContains(t, err, "no_such_setting")
}

func TestWithoutAFetchedPostgresTheMachinesOwnIsUsed(t *testing.T) {
	t.Parallel()
	cache, tries := t.TempDir(), 0
	noNetwork := func(context.Context, string) error { tries++; return errors.New("no network") }
	installed, found := newestInstalled(t.Context())
	for range 2 {
		b, err := findBinaries(t.Context(), cache, noNetwork)
		if !found {
			require.ErrorContains(t, err, "install PostgreSQL 15 or newer")
			require.ErrorContains(t, err, "no network")
			return
		}
		require.NoError(t, err)
		require.Equal(t, installed, b)
		require.GreaterOrEqual(t, b.major(), oldestMajor)
	}
	require.Equal(t, 1, tries, "a failed fetch is tried again at once")
}

func TestTheMachinesOwnPostgresRunsToo(t *testing.T) {
	t.Parallel()
	b, found := newestInstalled(t.Context())
	if !found {
		return // TestWithoutAFetchedPostgresTheMachinesOwnIsUsed covers what is said then
	}
	who, err := ordinaryAccount()
	require.NoError(t, err)
	cache := t.TempDir()
	require.NoError(t, makeData(t.Context(), b, who, cache, filepath.Join(cache, "data"), "secret"))
	cmd, err := b.command(t.Context(), "postgres", who, filepath.Join(cache, "data"))
	require.NoError(t, err)
	p := &Postgres{Cmd: cmd, password: "secret", exited: make(chan struct{})}
	p.Port, err = FreePort()
	require.NoError(t, err)
	cmd.Args = append(cmd.Args, arguments(p.Port, PostgresConfig{})...)
	require.NoError(t, Start(cmd))
	go func() { _ = cmd.Wait(); close(p.exited) }()
	require.NoError(t, p.Ready(t.Context()))
	require.NoError(t, p.Stop())
}

func TestURLsQuoteWhatTheyHold(t *testing.T) {
	t.Parallel()
	p := &Postgres{Port: 5432}
	u, err := url.Parse(p.URL("orders", "o'neil", "a/b@c:d"))
	require.NoError(t, err)
	password, _ := u.User.Password()
	require.Equal(t, []string{"o'neil", "a/b@c:d", "127.0.0.1:5432", "/orders"}, []string{u.User.Username(), password, u.Host, u.Path})
}
