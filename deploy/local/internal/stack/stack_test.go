package stack

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

func TestADirectoryHasOneOwnerWhoIsNamedToOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	release, err := own(dir)
	require.NoError(t, err)
	_, err = own(dir)
	require.ErrorContains(t, err, fmt.Sprintf("with pid %d:", os.Getpid()))
	release()
	release, err = own(dir)
	require.NoError(t, err)
	release()
}

func TestSecretsAreMadeOnceAndForOurEyesOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := loadSecrets(dir)
	require.NoError(t, err)
	again, err := loadSecrets(dir)
	require.NoError(t, err)
	require.Equal(t, first, again)
	info, err := os.Stat(filepath.Join(dir, "secrets.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	other, err := loadSecrets(t.TempDir())
	require.NoError(t, err)
	require.NotEqual(t, first.OpsToken, other.OpsToken)
}

func TestAPortThatIsInUseOrClaimedIsReplaced(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	taken := l.Addr().(*net.TCPAddr).Port
	var a, b ports
	defer a.release()
	defer b.release()
	got, err := a.take(taken)
	require.NoError(t, err)
	require.NotEqual(t, taken, got)
	mine, err := a.take(0)
	require.NoError(t, err)
	other, err := b.take(mine)
	require.NoError(t, err)
	require.NotEqual(t, mine, other, "another stack must keep away from it, though nobody listens there")
	a.release()
	testkit.Eventually(t, time.Minute, func() error { // a child that starts now keeps the claim a moment more
		again, err := b.take(mine)
		if err == nil && again != mine {
			return fmt.Errorf("the port that was given back, %d, is still replaced by %d", mine, again)
		}
		return err
	})
}

func TestTheCallersEnvironmentIsStrongerThanDefaultsAndWeakerThanAddresses(t *testing.T) {
	t.Parallel()
	env := environment(
		[]string{"OUTBOX_LEASE=9s", "OPS_TOKEN_FILE=/run/secrets/t", "DATABASE_URL=mine", "PATH=/bin"},
		map[string]string{"OUTBOX_LEASE": "3s", "OUTBOX_POLL": "200ms"},
		map[string]string{"OPS_TOKEN": "t", "DATABASE_URL": "theirs"})
	slices.Sort(env)
	require.Equal(t, []string{"DATABASE_URL=theirs", "OPS_TOKEN=t", "OUTBOX_LEASE=9s", "OUTBOX_POLL=200ms", "PATH=/bin"}, env)
}

func TestAMistakeInAServiceFileIsNamedWithTheFile(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"name":"other","processes":[{"name":"p","command":"serve","ops":1}]}`:                              "not that of its folder",
		`{"name":"toy","processes":[]}`:                                                                      "no processes",
		`{"name":"toy","processes":[{"name":"Toy Store","command":"serve","ops":1}]}`:                        "lower-case",
		`{"name":"toy","processes":[{"name":"toy","command":"serve"}]}`:                                      "an ops port",
		`{"name":"toy","proceses":[]}`:                                                                       "proceses",
		`{"name":"toy","processes":[{"name":"a","command":"s","ops":1},{"name":"a","command":"s","ops":2}]}`: "exists already",
	} {
		root := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(root, "services", "toy"), 0o755))
		file := filepath.Join(root, "services", "toy", "service.json")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := findServices(root)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, file)
	}
	_, err := findServices(t.TempDir())
	require.ErrorContains(t, err, "no services")
}

func TestTheRootIsFoundFromBelow(t *testing.T) {
	t.Parallel()
	root, err := FindRoot(".")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(root, "go.work"))
	_, err = FindRoot(os.TempDir())
	require.ErrorContains(t, err, "--root")
}

func TestAServicesRoleMayUseItsTablesAndNothingElse(t *testing.T) {
	t.Parallel()
	admin, err := url.Parse(testkit.Postgres(t))
	require.NoError(t, err)
	id := random(3)
	mine := database{name: "toy_" + id, owner: "toy_owner_" + id, role: "toy_role_" + id, admin: admin, key: "k"}
	other := database{name: "next_" + id, owner: "next_owner_" + id, role: "next_role_" + id, admin: admin, key: "k"}
	for range 2 { // the second time changes nothing
		require.NoError(t, mine.ensure(t.Context()))
		require.NoError(t, other.ensure(t.Context()))
	}
	exec := func(url, statement string) error {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(t.Context()) }()
		_, err = conn.Exec(t.Context(), statement)
		return err
	}
	require.NoError(t, exec(mine.ownerURL(), `CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY, n int)`))
	require.NoError(t, exec(mine.roleURL(), `INSERT INTO t (n) VALUES (1); UPDATE t SET n = 2; DELETE FROM t WHERE n = 3`))
	for _, forbidden := range []string{`DROP TABLE t`, `CREATE TABLE u ()`, `ALTER TABLE t ADD m int`, `TRUNCATE t`, `CREATE TEMPORARY TABLE v ()`} {
		require.Equal(t, "42501", postgres.Code(exec(mine.roleURL(), forbidden)), forbidden)
	}
	foreign := other
	foreign.name = mine.name
	require.Error(t, exec(foreign.roleURL(), `SELECT 1`), "nobody connects to another's database")
}
