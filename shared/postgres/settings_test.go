package postgres_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/settings"
	"example.com/paycast/shared/testkit"
)

func TestRightsBeyondRowsAreNamedAndTheClockIsRead(t *testing.T) {
	t.Parallel()
	address := testkit.Postgres(t)
	db := open(t, address)
	var r settings.Report
	require.NoError(t, postgres.Settings(db)(t.Context(), &r))
	require.Contains(t, r.Databases[0].Excess, "is a superuser")
	require.LessOrEqual(t, time.Duration(r.Databases[0].Ahead).Abs(), time.Second+time.Duration(r.Databases[0].RoundTrip), "it is the same machine")

	// A role for rows only has nothing to report; the owner of a table has.
	least := open(t, rowsOnly(t, db, address, "rows_only_of_the_settings_test"))
	require.NoError(t, postgres.Settings(least)(t.Context(), &r))
	require.Equal(t, "rows_only_of_the_settings_test", r.Databases[1].Role)
	require.Empty(t, r.Databases[1].Excess)

	require.NoError(t, db.Exec(`create table owned (id int); alter table owned owner to rows_only_of_the_settings_test`).Error)
	require.NoError(t, postgres.Settings(least)(t.Context(), &r))
	require.Equal(t, []string{"may change or drop tables in public"}, r.Databases[2].Excess)
}

// The trigger that keeps the audit as it is refuses whatever was granted. Without it the grant counts.
func TestARoleThatCouldChangeTheAuditIsNamed(t *testing.T) {
	t.Parallel()
	address := testkit.Postgres(t, audit.Migrations)
	db := open(t, address)
	least := open(t, rowsOnly(t, db, address, "changes_the_audit_of_the_settings_test"))
	var r settings.Report
	require.NoError(t, db.Exec(`grant select, insert, update, delete on t_audit to changes_the_audit_of_the_settings_test`).Error)
	require.NoError(t, postgres.Settings(least)(t.Context(), &r))
	require.Empty(t, r.Databases[0].Excess)
	require.NoError(t, db.Exec(`alter table t_audit disable trigger t_audit_is_append_only`).Error)
	require.NoError(t, postgres.Settings(least)(t.Context(), &r))
	require.Equal(t, []string{"may change what t_audit says"}, r.Databases[1].Excess)
	require.NoError(t, db.Exec(`revoke update, delete on t_audit from changes_the_audit_of_the_settings_test`).Error)
	require.NoError(t, postgres.Settings(least)(t.Context(), &r))
	require.Empty(t, r.Databases[2].Excess)
}

func TestOtherDatabasesThatARoleReachesAreNamed(t *testing.T) {
	t.Parallel()
	address, other := testkit.Postgres(t), testkit.Postgres(t)
	db := open(t, address)
	least := open(t, rowsOnly(t, db, address, "reaches_far_in_the_settings_test"))
	u, err := url.Parse(other)
	require.NoError(t, err)
	name := strings.TrimPrefix(u.Path, "/")
	var r settings.Report
	require.NoError(t, postgres.Settings(least)(t.Context(), &r))
	require.Contains(t, r.Databases[0].Reaches, name, "everybody may connect by default")
	require.NotContains(t, r.Databases[0].Reaches, r.Databases[0].Name)
	require.NoError(t, db.Exec(`revoke connect on database `+name+` from public`).Error)
	require.NoError(t, postgres.Settings(least)(t.Context(), &r))
	require.NotContains(t, r.Databases[1].Reaches, name)
}

// rowsOnly makes a role without rights of its own and gives its address.
func rowsOnly(t *testing.T, db *gorm.DB, address, role string) string {
	t.Helper()
	require.NoError(t, db.Exec(`create role `+role+` login password 'p'`).Error)
	t.Cleanup(func() { require.NoError(t, db.Exec(`drop owned by `+role+`; drop role `+role).Error) })
	u, err := url.Parse(address)
	require.NoError(t, err)
	u.User = url.UserPassword(role, "p")
	return u.String()
}
