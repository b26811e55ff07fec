package postgres_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	require.Less(t, time.Duration(r.Databases[0].Ahead).Abs(), 2*time.Second, "it is the same machine")

	// A role for rows only has nothing to report; the owner of a table has.
	require.NoError(t, db.Exec(`create role rows_only_of_the_settings_test login password 'p'`).Error)
	t.Cleanup(func() {
		require.NoError(t, db.Exec(`drop owned by rows_only_of_the_settings_test; drop role rows_only_of_the_settings_test`).Error)
	})
	u, err := url.Parse(address)
	require.NoError(t, err)
	u.User = url.UserPassword("rows_only_of_the_settings_test", "p")
	least := open(t, u.String())
	require.NoError(t, postgres.Settings(least)(t.Context(), &r))
	require.Equal(t, "rows_only_of_the_settings_test", r.Databases[1].Role)
	require.Empty(t, r.Databases[1].Excess)

	require.NoError(t, db.Exec(`create table owned (id int); alter table owned owner to rows_only_of_the_settings_test`).Error)
	require.NoError(t, postgres.Settings(least)(t.Context(), &r))
	require.Equal(t, []string{"may change or drop tables in public"}, r.Databases[2].Excess)
}
