package archive_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/archive"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var keep = archive.Retention{Window: 24 * time.Hour, Kafka: time.Hour, Replay: time.Hour, Batch: 100}

var letters = archive.Rows{
	From: "t_letter", To: "t_letter_archive", Columns: "id, body, at", Key: "id", Scope: "true",
	Final: "done AND at < now() - make_interval(secs => @window)",
}

// shelf is a table of letters, and an archive of them with a partition for this century.
type shelf struct {
	t  *testing.T
	db *gorm.DB
}

func newShelf(t *testing.T, letters int) shelf {
	db, err := postgres.Open(t.Context(), testkit.Postgres(t), "test")
	require.NoError(t, err)
	t.Cleanup(func() { postgres.Close(db) })
	s := shelf{t, db}
	s.exec("CREATE TABLE t_letter (id text PRIMARY KEY, body text NOT NULL, at timestamptz NOT NULL, done bool NOT NULL)")
	s.exec("CREATE TABLE t_letter_archive (id text NOT NULL, body text NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)")
	s.exec("CREATE TABLE t_letter_archive_now PARTITION OF t_letter_archive FOR VALUES FROM ('2000-01-01') TO ('2100-01-01')")
	s.exec("INSERT INTO t_letter SELECT 'l' || n, 'body ' || n, now() - interval '2 days', true FROM generate_series(1, ?) n", letters)
	return s
}

func (s shelf) exec(sql string, args ...any) {
	s.t.Helper()
	require.NoError(s.t, s.db.Exec(sql, args...).Error)
}

func (s shelf) ids(rest string) (ids []string) {
	s.t.Helper()
	require.NoError(s.t, s.db.Raw("SELECT id FROM "+rest+" ORDER BY id").Scan(&ids).Error)
	return ids
}

func TestRowsThatTheArchiveDoesNotTakeAreNamedAndStopNoOther(t *testing.T) {
	t.Parallel()
	s := newShelf(t, 1000)
	s.exec("UPDATE t_letter SET at = '1999-12-31' WHERE id IN ('l1', 'l2', 'l640')") // no partition takes them
	s.exec("INSERT INTO t_letter_archive SELECT id, 'altered', at FROM t_letter WHERE id = 'l500'")
	s.exec("INSERT INTO t_letter_archive SELECT id, body, at FROM t_letter WHERE id = 'l501'") // an honest copy
	s.exec("UPDATE t_letter SET done = false WHERE id IN ('l3', 'l777')")
	moved, err := archive.Move(t.Context(), s.db, keep, letters)
	require.ErrorContains(t, err, "does not take 4 of the rows")
	for _, id := range []string{"l1", "l2", "l640", "l500"} {
		require.Regexp(t, `\b`+id+`\b`, err.Error())
	}
	require.NotRegexp(t, `\bl(3|777|501)\b`, err.Error(), "only they are named")
	require.Equal(t, 994, moved)
	require.Equal(t, []string{"l1", "l2", "l3", "l500", "l640", "l777"}, s.ids("t_letter"))
	require.Len(t, s.ids("t_letter_archive"), 995)
	require.Equal(t, []string{"l500"}, s.ids("t_letter_archive WHERE body <> 'body ' || substr(id, 2)"))

	s.exec("CREATE TABLE t_letter_archive_old PARTITION OF t_letter_archive FOR VALUES FROM ('1900-01-01') TO ('2000-01-01')")
	s.exec("DELETE FROM t_letter_archive WHERE id = 'l500'")
	moved, err = archive.Move(t.Context(), s.db, keep, letters)
	require.NoError(t, err)
	require.Equal(t, 4, moved)
	require.Equal(t, []string{"l3", "l777"}, s.ids("t_letter"), "what is unfinished never moves")
}

// TestRowWhosePlaceCannotBeMadeStopsNoOther: a partition that somebody made by hand is in the way of its month's.
func TestRowWhosePlaceCannotBeMadeStopsNoOther(t *testing.T) {
	t.Parallel()
	s := newShelf(t, 10)
	s.exec("UPDATE t_letter SET at = '1999-12-31' WHERE id = 'l7'")
	s.exec("CREATE TABLE by_hand PARTITION OF t_letter_archive FOR VALUES FROM ('1999-06-01') TO ('1999-07-01')")
	s.exec(`CREATE FUNCTION make_nineties() RETURNS void LANGUAGE plpgsql AS $$
	        BEGIN CREATE TABLE nineties PARTITION OF t_letter_archive FOR VALUES FROM ('1990-01-01') TO ('2000-01-01'); END $$`)
	rows := letters
	rows.Prepare = "SELECT make_nineties() FROM t_letter WHERE id IN @keys AND at < '2000-01-01'"
	moved, err := archive.Move(t.Context(), s.db, keep, rows)
	require.ErrorContains(t, err, "nothing is deleted of them: l7; the first: ")
	require.ErrorContains(t, err, "by_hand")
	require.Equal(t, 9, moved)
	require.Equal(t, []string{"l7"}, s.ids("t_letter"))
}

func TestRunEndsWhenTheArchiveDoesNotTakeAHundredRowsAndNamesTen(t *testing.T) {
	t.Parallel()
	s := newShelf(t, 500)
	s.exec("UPDATE t_letter SET at = '1999-12-31'")
	moved, err := archive.Move(t.Context(), s.db, keep, letters)
	require.Zero(t, moved)
	require.ErrorContains(t, err, "does not take 100 of the rows")
	require.ErrorContains(t, err, " and 90 more; the first: ")
	require.ErrorContains(t, err, "there are more, and this run ends")
	require.Len(t, s.ids("t_letter"), 500)
}

func TestRunThatIsKilledAmongTheHalvesLeavesEachRowInOnePlaceAndTheNextGoesOn(t *testing.T) {
	t.Parallel()
	s := newShelf(t, 100)
	s.exec("INSERT INTO t_letter_archive SELECT id, 'altered', at FROM t_letter WHERE id = 'l1'")
	// The whole batch is refused for l1. Half of the others passes, then it ends between copy and delete.
	s.exec(`CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$
	        BEGIN IF (SELECT count(*) FROM t_letter_archive) > 60 THEN RAISE EXCEPTION 'killed'; END IF; RETURN old; END $$`)
	s.exec("CREATE TRIGGER die BEFORE DELETE ON t_letter FOR EACH ROW EXECUTE FUNCTION die()")
	moved, err := archive.Move(t.Context(), s.db, keep, letters)
	require.ErrorContains(t, err, "killed")
	require.Positive(t, moved)
	require.Len(t, s.ids("t_letter"), 100-moved)
	require.Equal(t, []string{"l1"}, s.ids("t_letter JOIN t_letter_archive USING (id)"))

	s.exec("DROP TRIGGER die ON t_letter")
	again, err := archive.Move(t.Context(), s.db, keep, letters)
	require.EqualError(t, err, "archiving t_letter: the archive does not take 1 of the rows, and nothing is deleted of them: l1; "+
		"the first: the archive holds something else under the same key")
	require.Equal(t, 99, moved+again)
}
