package testkit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/paycast/shared/embedded"
	"example.com/paycast/shared/postgres"
)

// Postgres returns the URL of a new, migrated database of the test's own. It is dropped at the end of the test, with
// whatever is still connected to it.
func Postgres(t testing.TB, sets ...postgres.Set) (url string) {
	t.Helper()
	server, err := sharedServer()
	if err != nil {
		t.Fatalf("starting PostgreSQL for tests: %v", err)
	}
	template, err := migrated(server, sets)
	if err != nil {
		t.Fatal(err)
	}
	name := "test_" + strconv.FormatInt(databases.Add(1), 10)
	if err := admin(server, "CREATE DATABASE "+name+" TEMPLATE "+template+" STRATEGY FILE_COPY"); err != nil {
		t.Fatalf("creating a database: %v", err)
	}
	t.Cleanup(func() {
		if err := admin(server, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("dropping the test's database: %v", err)
		}
	})
	return server.URL(name, embedded.Superuser, "")
}

var databases atomic.Int64

// sharedServer is the one server of this test binary, started by the first test that needs it. fsync is off: a commit
// survives the server's death, which tests provoke, but not the machine's.
var sharedServer = sync.OnceValues(func() (*embedded.Postgres, error) {
	parent, err := scratch()
	if err != nil {
		return nil, err
	}
	s, err := embedded.StartPostgres(context.Background(), embedded.PostgresConfig{
		Dir:      filepath.Join(parent, "postgres"),
		Settings: map[string]string{"max_wal_size": "128MB"}, // memory is dearer than a checkpoint without fsync
	})
	server.Store(s)
	return s, err
})

var server atomic.Pointer[embedded.Postgres] // of sharedServer, for Main

// migrated returns the name of a template database that sets have been applied to. It is made once: a copy takes a
// twentieth of the time that migrations take.
func migrated(server *embedded.Postgres, sets []postgres.Set) (string, error) {
	if len(sets) == 0 {
		return "template1", nil
	}
	key, err := fingerprint(sets)
	if err != nil {
		return "", fmt.Errorf("reading migrations: %w", err)
	}
	name := "migrated_" + key
	once, _ := templates.LoadOrStore(key, sync.OnceValue(func() error {
		if err := admin(server, "CREATE DATABASE "+name); err != nil {
			return err
		}
		return postgres.Migrate(context.Background(), server.URL(name, embedded.Superuser, ""), sets...)
	}))
	return name, once.(func() error)()
}

var templates sync.Map // fingerprint → func() error

// fingerprint is the same for sets that migrate alike: their order, names, and each file's name and bytes.
func fingerprint(sets []postgres.Set) (string, error) {
	h := sha256.New()
	for _, set := range sets {
		_, _ = fmt.Fprintf(h, "set %q\n", set.Name) // a hash never fails to write
		err := fs.WalkDir(set.FS, ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := fs.ReadFile(set.FS, path)
			_, _ = fmt.Fprintf(h, "file %q %d\n%s\n", path, len(text), text)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// admin runs one statement on the server, outside any test's database. The backend of a client that has left takes a
// moment to leave as well; a template or a database that is still in use for that reason is asked for again.
func admin(server *embedded.Postgres, statement string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server.URL("postgres", embedded.Superuser, ""))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for begun := time.Now(); ; {
		_, err = conn.Exec(ctx, statement)
		if postgres.Code(err) != objectInUse || time.Since(begun) > time.Minute {
			return err
		}
	}
}

const objectInUse = "55006" // the server itself waits for five seconds before it says so
