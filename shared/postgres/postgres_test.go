package postgres_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

var accounts = postgres.Set{Name: "accounts", FS: fstest.MapFS{"00001_account.sql": {Data: []byte(`-- +goose Up
create table account (id int primary key, balance int not null, constraint account_positive check (balance >= 0));
insert into account values (1, 0), (2, 0);
-- a constraint that is looked at only by COMMIT
create table promise (id int references account deferrable initially deferred);
`)}}}

func open(t *testing.T, url string, opts ...postgres.Option) *gorm.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), url, "test", opts...)
	require.NoError(t, err)
	t.Cleanup(func() { postgres.Close(db) })
	return db
}

func balance(t *testing.T, db *gorm.DB, id int) (n int) {
	t.Helper()
	require.NoError(t, db.Raw("select balance from account where id = ?", id).Scan(&n).Error)
	return n
}

func TestConnectionsHaveTheSettingsThatWeRelyOn(t *testing.T) {
	t.Parallel()
	db := open(t, testkit.Postgres(t))
	for name, want := range map[string]string{
		"jit": "off", "lock_timeout": "10s", "statement_timeout": "1min", "idle_in_transaction_session_timeout": "1min",
		"TimeZone": "UTC", "application_name": "test", "transaction_isolation": "read committed",
	} {
		var got string
		require.NoError(t, db.Raw("select current_setting(?)", name).Scan(&got).Error)
		require.Equal(t, want, got, name)
	}
}

func TestAnAddressThatIsWrongFailsAtOpenWithoutItsPassword(t *testing.T) {
	t.Parallel()
	nowhere, err := url.Parse(testkit.Postgres(t))
	require.NoError(t, err)
	nowhere.Path = "/nowhere"
	_, err = postgres.Open(t.Context(), nowhere.String(), "test")
	require.ErrorContains(t, err, "3D000")
	for _, address := range []string{"not an address", "postgres://u:hunter2@127.0.0.1:x/db"} {
		_, err := postgres.Open(t.Context(), address, "test")
		require.Error(t, err, address)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestADatabaseThatIsAwayAtOpenIsUsedOnceItIsThere(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(testkit.Postgres(t, accounts))
	require.NoError(t, err)
	link := testkit.Proxy(t, u.Host)
	u.Host, u.User = link.Addr(), url.UserPassword(u.User.Username(), "hunter2") // the tests' server asks for none
	link.Cut()
	db := open(t, u.String())
	err = postgres.Ping(db)(t.Context())
	require.True(t, postgres.Down(err), "%v", err)
	require.NotContains(t, err.Error(), "hunter2", "readiness shows it")
	link.Restore()
	require.NoError(t, postgres.Ping(db)(t.Context()))
	require.Zero(t, balance(t, db, 1))
}

func TestInTxIsTrueExactlyInsideATransaction(t *testing.T) {
	t.Parallel()
	db := open(t, testkit.Postgres(t))
	require.False(t, postgres.InTx(db))
	require.False(t, postgres.InTx(db.WithContext(t.Context())))
	require.NoError(t, postgres.Transaction(t.Context(), db, func(tx *gorm.DB) error {
		require.True(t, postgres.InTx(tx))
		require.True(t, postgres.InTx(tx.Session(&gorm.Session{NewDB: true})))
		return nil
	}))
	require.False(t, postgres.InTx(db))
}

func TestADeadlockedTransactionRunsAgainWithFreshReads(t *testing.T) {
	t.Parallel()
	db := open(t, testkit.Postgres(t, accounts))
	var both sync.WaitGroup // holds both inside their first try until each has its first lock
	both.Add(2)
	var runs atomic.Int32
	add := func(first, second int) error {
		once := sync.OnceFunc(func() { both.Done(); both.Wait() })
		return postgres.Transaction(t.Context(), db, func(tx *gorm.DB) error {
			runs.Add(1)
			var before int
			if err := tx.Raw("select balance from account where id = ? for update", first).Scan(&before).Error; err != nil {
				return err
			}
			once()
			if err := tx.Exec("update account set balance = ? where id = ?", before+1, first).Error; err != nil {
				return err
			}
			return tx.Exec("update account set balance = balance + 1 where id = ?", second).Error
		})
	}
	errs := make(chan error, 2)
	go func() { errs <- add(1, 2) }()
	go func() { errs <- add(2, 1) }()
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
	require.Equal(t, int32(3), runs.Load(), "one of the two must have been the deadlock's victim and have run again")
	require.Equal(t, 2, balance(t, db, 1))
	require.Equal(t, 2, balance(t, db, 2))
}

func TestASerializationFailureThatCommitReportsRunsAgain(t *testing.T) {
	t.Parallel()
	address := testkit.Postgres(t, accounts)
	db := open(t, address+"&default_transaction_isolation=serializable")
	runs := 0
	err := postgres.Transaction(t.Context(), db, func(tx *gorm.DB) error {
		runs++
		var sum int
		if err := tx.Raw("select sum(balance) from account").Scan(&sum).Error; err != nil {
			return err
		}
		if runs == 1 { // a write skew: each reads what the other writes, and the other commits first
			if err := db.Transaction(func(other *gorm.DB) error {
				if err := other.Raw("select sum(balance) from account").Scan(&sum).Error; err != nil {
					return err
				}
				return other.Exec("update account set balance = balance + 10 where id = 2").Error
			}); err != nil {
				return err
			}
		}
		return tx.Exec("update account set balance = ? where id = 1", sum+1).Error
	})
	require.NoError(t, err)
	require.Equal(t, 2, runs)
	require.Equal(t, 11, balance(t, db, 1), "the second run must have read the other's commit")
}

func TestAnErrorThatCommitReportsIsNotLost(t *testing.T) {
	t.Parallel()
	db := open(t, testkit.Postgres(t, accounts))
	err := postgres.Transaction(t.Context(), db, func(tx *gorm.DB) error {
		return tx.Exec("insert into promise values (99)").Error // no such account: COMMIT will say so
	})
	require.Equal(t, "23503", postgres.Code(err))
	require.NotErrorIs(t, err, postgres.ErrCommitUnknown, "the server has answered, so the outcome is known")
}

func TestAConnectionCutAtCommitIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	address := testkit.Postgres(t, accounts)
	direct := open(t, address)
	u, err := url.Parse(address)
	require.NoError(t, err)
	proxy := cutter(t, u.Host)
	u.Host = proxy.addr
	db := open(t, u.String(), postgres.WithPool(1))
	err = postgres.Transaction(t.Context(), db, func(tx *gorm.DB) error {
		if err := tx.Exec("update account set balance = balance + 1 where id = 1").Error; err != nil {
			return err
		}
		proxy.swallowAnswers.Store(true) // COMMIT gets through, its answer does not
		return nil
	})
	require.ErrorIs(t, err, postgres.ErrCommitUnknown)
	require.True(t, postgres.Down(err))
	require.Equal(t, 1, balance(t, direct, 1), "this is the damage: it failed, and it is committed")
}

func TestErrorsAreSortedByWhoIsToBlame(t *testing.T) {
	t.Parallel()
	db := open(t, testkit.Postgres(t, accounts))
	run := func(sql string) error { return db.Exec(sql).Error }
	short, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	for name, c := range map[string]struct {
		err  error
		down bool
	}{
		"no table":               {run("select * from nowhere"), true},
		"no rights":              {&pgconn.PgError{Code: "42501"}, true},
		"password refused":       {&pgconn.PgError{Code: "28P01"}, true},
		"disk full":              {&pgconn.PgError{Code: "53100"}, true},
		"shutting down":          {&pgconn.PgError{Code: "57P01"}, true},
		"standby":                {&pgconn.PgError{Code: "25006"}, true},
		"refused":                {&net.OpError{Op: "dial", Err: errors.New("refused")}, true},
		"dead connection":        {fmt.Errorf("claiming: %w", driver.ErrBadConn), true},
		"connection gone before": {fmt.Errorf("claiming: %w", pgconn.ErrConnClosed), true},
		"check violated":         {run("update account set balance = -1 where id = 1"), false},
		"not a number":           {run("select 'x'::int"), false},
		"serialization":          {&pgconn.PgError{Code: "40001"}, false},
		"statement timed out":    {&pgconn.PgError{Code: "57014"}, false},
		"caller gave up":         {context.Canceled, false},
		"nothing":                {nil, false},
		"deadline of the call":   {db.WithContext(short).Exec("select 1").Error, false},
	} {
		require.Equal(t, c.down, postgres.Down(c.err), "%s: %v", name, c.err)
	}
	err := run("insert into account values (1, 0)")
	require.True(t, postgres.IsUnique(err, "account_pkey"))
	require.False(t, postgres.IsUnique(err, "account_other"), "another constraint is another matter")
}

func TestFiveStartersMigrateOnce(t *testing.T) {
	t.Parallel()
	address := testkit.Postgres(t)
	set := postgres.Set{Name: "once", FS: fstest.MapFS{
		"00001_a.sql": {Data: []byte("-- +goose Up\ncreate table a (id int);\n")},
		"00002_b.sql": {Data: []byte("-- +goose Up\ninsert into a values (1);\n")},
	}}
	errs := make(chan error)
	for range 5 {
		go func() { errs <- postgres.Migrate(t.Context(), address, set) }()
	}
	for range 5 {
		require.NoError(t, <-errs)
	}
	var rows int
	require.NoError(t, open(t, address).Raw("select count(*) from a").Scan(&rows).Error)
	require.Equal(t, 1, rows)
}

func TestAMigrationThatFailsLeavesNothingAndRunsAgain(t *testing.T) {
	t.Parallel()
	address := testkit.Postgres(t)
	broken := fstest.MapFS{"00001_a.sql": {Data: []byte("-- +goose Up\ncreate table a (id int);\nselect 1/0;\n")}}
	err := postgres.Migrate(t.Context(), address, postgres.Set{Name: "s", FS: broken})
	require.ErrorContains(t, err, "migrating s")
	mended := fstest.MapFS{"00001_a.sql": {Data: []byte("-- +goose Up\ncreate table a (id int);\n")}}
	require.NoError(t, postgres.Migrate(t.Context(), address, postgres.Set{Name: "s", FS: mended}))
}
