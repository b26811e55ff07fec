package testkit

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/postgres"
)

var letters = postgres.Set{Name: "letters", FS: fstest.MapFS{
	"00001_letter.sql": {Data: []byte("-- +goose Up\nCREATE TABLE letter (body text);\n")},
}}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // its server may be out of reach
	return conn
}

func TestEachTestGetsAMigratedDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	for range 3 {
		conn := connect(t, Postgres(t, letters))
		var n int
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM letter").Scan(&n))
		require.Zero(t, n, "another test's rows are here")
		_, err := conn.Exec(t.Context(), "INSERT INTO letter VALUES ('mine')")
		require.NoError(t, err)
	}
	var table *string
	require.NoError(t, connect(t, Postgres(t)).QueryRow(t.Context(), "SELECT to_regclass('letter')::text").Scan(&table))
	require.Nil(t, table, "a database without sets is empty")
}

func TestADatabaseIsDroppedWithItsTest(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("inner", func(t *testing.T) {
		url = Postgres(t)
		open, err := pgx.Connect(t.Context(), url) // a connection that the test forgot
		require.NoError(t, err)
		_ = open
	})
	_, err := pgx.Connect(t.Context(), url)
	require.ErrorContains(t, err, "3D000", "the database still exists")
}

func TestSetsThatMigrateAlikeShareATemplateAndOthersDoNot(t *testing.T) {
	t.Parallel()
	print := func(sets ...postgres.Set) string {
		t.Helper()
		key, err := fingerprint(sets)
		require.NoError(t, err)
		return key
	}
	same := postgres.Set{Name: "letters", FS: fstest.MapFS{"00001_letter.sql": letters.FS.(fstest.MapFS)["00001_letter.sql"]}}
	require.Equal(t, print(letters), print(same))
	renamed := postgres.Set{Name: "mail", FS: letters.FS}
	require.NotEqual(t, print(letters), print(renamed))
	require.NotEqual(t, print(letters, renamed), print(renamed, letters))
	changed := postgres.Set{Name: "letters", FS: fstest.MapFS{"00001_letter.sql": {Data: []byte("-- +goose Up\nSELECT 1;\n")}}}
	require.NotEqual(t, print(letters), print(changed))
}

func TestAMigrationThatFailsFailsTheTest(t *testing.T) {
	t.Parallel()
	broken := postgres.Set{Name: "broken", FS: fstest.MapFS{"00001_x.sql": {Data: []byte("-- +goose Up\nCREATE TABEL x;\n")}}}
	server, err := sharedServer()
	require.NoError(t, err)
	for range 2 { // the second asker is told as well
		_, err := migrated(server, []postgres.Set{broken})
		require.ErrorContains(t, err, "migrating broken")
	}
}

func TestAKilledTestBinaryLeavesNoServerAndNoFiles(t *testing.T) {
	t.Parallel()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=1")
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	dir := strings.TrimSpace(line)
	require.DirExists(t, dir)
	require.NotEmpty(t, below(t, dir))

	require.NoError(t, child.Process.Kill())
	require.ErrorContains(t, child.Wait(), "killed")

	require.Eventually(t, func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err) && len(below(t, dir)) == 0
	}, 2*time.Minute, 50*time.Millisecond)
}

// below returns the processes whose working directory is in dir, even if it has been removed.
func below(t *testing.T, dir string) (pids []string) {
	t.Helper()
	links, err := os.ReadDir("/proc")
	require.NoError(t, err)
	for _, entry := range links {
		if cwd, err := os.Readlink("/proc/" + entry.Name() + "/cwd"); err == nil && strings.HasPrefix(cwd, dir+"/") {
			pids = append(pids, entry.Name())
		}
	}
	return pids
}
