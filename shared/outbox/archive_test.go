package outbox

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/event"
)

const day = 24 * time.Hour

var weeks = Retention{Window: 30 * day, Kafka: 7 * day, Replay: 14 * day, Batch: 50}

// old makes the rows of a prefix sent, and appended this many days ago.
func (s *stage) old(prefix string, days int) {
	s.t.Helper()
	s.exec(`update t_outbox_event set status = 'SENT', sent_at = now() - $2 * interval '1 day', created_at = now() - $2 * interval '1 day',
	        broker_partition = 1, broker_offset = 1 where message_key like $1 || '-%'`, prefix, days)
}

func (s *stage) archived() (n int) {
	s.t.Helper()
	require.NoError(s.t, s.sql.QueryRow(s.t.Context(), "select count(*) from t_outbox_archive").Scan(&n))
	return n
}

// ensurePartition makes the partition of a month, "2026-01".
func ensurePartition(tx *gorm.DB, month string) error {
	return tx.Exec("select t_outbox_archive_partition(cast(? as date))", month+"-01").Error
}

func TestOldSentRowsMoveAndNothingElseDoes(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, prefix := range []string{"old", "older", "young", "late", "dead", "waiting"} {
		s.fill(prefix, 120, 120)
	}
	s.old("old", 31)
	s.old("older", 95)
	s.old("young", 29)
	s.old("late", 40)
	s.exec("update t_outbox_event set sent_at = now() - interval '1 day' where message_key like 'late-%'")
	s.exec("update t_outbox_event set created_at = now() - interval '1 year' where message_key like 'dead-%' or message_key like 'waiting-%'")
	s.exec("update t_outbox_event set status = 'DEAD', last_error_code = 'x' where message_key like 'dead-%'")

	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if _, err := Archive(t.Context(), s.db, weeks); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	_, err := Archive(t.Context(), s.db, weeks) // what the three left to each other
	require.NoError(t, err)
	require.Equal(t, 240, s.archived())
	require.Equal(t, 480, s.count("true"))
	require.Zero(t, s.count("message_key like 'old%'"))

	facts, err := Facts(t.Context(), s.db, event.AggregateOrder, []string{"old-1", "young-1"})
	require.NoError(t, err)
	require.Len(t, facts["old-1"], 1, "a reconciler sees archived events too")
	require.Equal(t, Sent, facts["old-1"][0].Status)
	require.Len(t, facts["young-1"], 1)
}

func TestArchiveThatIsInterruptedLeavesEachRowInOnePlaceAndGoesOn(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("old", 200, 200)
	s.old("old", 40)
	s.exec("update t_outbox_event set created_at = created_at - (hashtext(event_id) & 1) * interval '60 days'") // two months in each batch
	// The first batch passes, the second ends between copy and delete.
	s.exec(`create function die() returns trigger language plpgsql as $$
	        begin if (select count(*) from t_outbox_archive) > 60 then raise exception 'killed'; end if; return old; end $$`)
	s.exec("create trigger die before delete on t_outbox_event for each row execute function die()")
	_, err := Archive(t.Context(), s.db, weeks)
	require.Error(t, err)
	require.Equal(t, 50, s.archived())
	require.Equal(t, 150, s.count("true"))

	s.exec("drop trigger die on t_outbox_event")
	moved, err := Archive(t.Context(), s.db, weeks)
	require.NoError(t, err)
	require.Equal(t, 150, moved)
	require.Equal(t, 200, s.archived())
}

func TestCopyThatWasThereBeforeIsComparedBeforeTheRowIsDeleted(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("old", 10, 10)
	s.old("old", 40)
	s.exec("select t_outbox_archive_partition((created_at at time zone 'UTC')::date) from t_outbox_event")
	s.exec("insert into t_outbox_archive (" + archivedColumns + ") select " + archivedColumns + " from t_outbox_event where event_id in ('old-1', 'old-2')")
	s.exec("update t_outbox_archive set payload = 'altered' where event_id = 'old-2'")
	moved, err := Archive(t.Context(), s.db, weeks)
	require.ErrorContains(t, err, "nothing is deleted of them: old-2;")
	require.Equal(t, 9, moved)
	require.Equal(t, 1, s.count("true"))
	require.Equal(t, 1, s.count("event_id = 'old-2'"))

	s.exec("delete from t_outbox_archive where event_id = 'old-2'")
	moved, err = Archive(t.Context(), s.db, weeks)
	require.NoError(t, err)
	require.Equal(t, 1, moved)
	require.Equal(t, 10, s.archived())
}

func TestWindowThatIsTooShortIsRefusedWithTheArithmetic(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]Retention{
		"shorter than Kafka's": {Window: 6 * day, Kafka: 7 * day, Replay: day},
		"shorter than replay":  {Window: 13 * day, Kafka: 7 * day, Replay: 14 * day},
		"nothing given":        {},
	} {
		_, err := Archive(t.Context(), nil, r)
		require.Error(t, err, name)
	}
	require.ErrorContains(t, Retention{Window: 6 * day, Kafka: 7 * day, Replay: day}.Validate(), "window 144h0m0s is too short: Kafka keeps records for 168h0m0s")
}
