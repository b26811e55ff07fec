package audit

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestActIsRecordedWithItsChangeAndNeverAltered(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), testkit.Postgres(t, Migrations), "test")
	require.NoError(t, err)
	defer postgres.Close(db)
	by := By{"anna", "the topic was full"}
	require.Error(t, Write(t.Context(), db, by, "release", "outbox/E1", ""))
	boom := errors.New("no")
	require.ErrorIs(t, db.Transaction(func(tx *gorm.DB) error {
		require.NoError(t, Write(t.Context(), tx, by, "release", "outbox/E1", ""))
		return boom
	}), boom)
	var n int64
	require.NoError(t, db.Table("t_audit").Count(&n).Error)
	require.Zero(t, n)
	require.NoError(t, db.Transaction(func(tx *gorm.DB) error { return Write(t.Context(), tx, by, "release", "outbox/E1", "x") }))
	acts, err := Of(t.Context(), db, "outbox/E1")
	require.NoError(t, err)
	require.Len(t, acts, 1)
	require.Equal(t, Entry{At: acts[0].At, Actor: "anna", Verb: "release", Reason: "the topic was full", Detail: "x"}, acts[0])
	for _, sql := range []string{"update t_audit set actor = 'x'", "delete from t_audit", "truncate t_audit"} {
		require.ErrorContains(t, db.Exec(sql).Error, "append-only")
	}
}

func TestActWithoutPersonOrReasonIsRefused(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "{}", `{"actor":"anna"}`, `{"reason":"r"}`, `{"actor":"anna","reason":"` + strings.Repeat("r", 513) + `"}`, "x",
		`{"actor":" ","reason":"r"}`, `{"actor":"anna","reason":"\t\u00a0\n"}`, `{"actor":"an\u0000na","reason":"r"}`, `{"actor":"anna","reason":"r\u0000"}`,
		`{"actor":"anna","reason":"r"} and more`, `{"actor":"anna","reason":"r"}{}`, `{"actor":"anna","reason":"r","dry_run":true}`} {
		_, err := From(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body)))
		require.ErrorIs(t, err, ErrNobody, body)
	}
	require.ErrorIs(t, By{"anna", "r\xff"}.Check(), ErrNobody)
	by, err := From(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{"actor":"anna","reason":"r"}`)))
	require.NoError(t, err)
	require.Equal(t, By{"anna", "r"}, by)
}

func TestActChangesAndIsRecordedOrNeitherAndADryRunIsNeither(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), testkit.Postgres(t, Migrations), "test")
	require.NoError(t, err)
	defer postgres.Close(db)
	require.NoError(t, db.Exec("create table lamp (lit bool)").Error)
	require.NoError(t, db.Exec("insert into lamp values (false)").Error)
	act := func(by By, dry bool, then error) error {
		return Act(t.Context(), db, by, "light", "lamp/1", dry, func(tx *gorm.DB) (string, error) {
			require.NoError(t, tx.Exec("update lamp set lit = true").Error)
			return "it was dark", then
		})
	}
	is := func(lit bool, acts int) {
		t.Helper()
		var found bool
		require.NoError(t, db.Raw("select lit from lamp").Scan(&found).Error)
		require.Equal(t, lit, found)
		recorded, err := Of(t.Context(), db, "lamp/1")
		require.NoError(t, err)
		require.Len(t, recorded, acts)
	}
	boom, anna := errors.New("no"), By{"anna", "it is late"}
	require.ErrorIs(t, act(anna, false, boom), boom)
	require.ErrorIs(t, act(anna, true, boom), boom)
	require.Error(t, act(By{}, false, nil), "nobody can be recorded")
	require.NoError(t, act(anna, true, nil))
	is(false, 0)
	require.NoError(t, act(anna, false, nil))
	is(true, 1)
}
