package inbox_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/archive"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/testkit"
)

const day = 24 * time.Hour

var month = archive.Retention{Window: 30 * day, Kafka: 7 * day, Replay: 14 * day, Batch: 3}

// age makes all rows this many days old.
func (l log) age(days int) {
	l.t.Helper()
	require.NoError(l.t, l.db.Exec("UPDATE t_message_consume SET first_received_at = now() - ? * interval '1 day', updated_at = now() - ? * interval '1 day'", days, days).Error)
}

func (l log) rows(table string) (n int64) {
	l.t.Helper()
	require.NoError(l.t, l.db.Table(table).Count(&n).Error)
	return n
}

func TestOnlyOldFinishedRowsAreArchivedAndTheyStillCount(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	for v := int64(1); v <= 7; v++ {
		_, ran, err := l.once(delivery(v), nil)
		require.NoError(t, err)
		require.True(t, ran)
	}
	_, err := l.fail(delivery(8), inbox.Failure{Outcome: inbox.Retry})
	require.NoError(t, err)
	l.age(29)
	moved, err := inbox.Archive(t.Context(), l.db, "g", month)
	require.NoError(t, err)
	require.Zero(t, moved)
	l.age(31)
	moved, err = inbox.Archive(t.Context(), l.db, "other", month)
	require.NoError(t, err)
	require.Zero(t, moved, "another group's rows are its own")
	before, err := inbox.Facts(t.Context(), l.db, "g", "", 100, nil)
	require.NoError(t, err)

	moved, err = inbox.Archive(t.Context(), l.db, "g", month)
	require.NoError(t, err)
	require.Equal(t, 7, moved)
	require.EqualValues(t, 1, l.rows("t_message_consume"), "what is unfinished stays, however old")
	after, err := inbox.Facts(t.Context(), l.db, "g", "", 100, nil)
	require.NoError(t, err)
	require.Equal(t, before, after, "a reconciler sees no difference")
	page, err := inbox.Facts(t.Context(), l.db, "g", "event-3", 2, nil)
	require.NoError(t, err)
	require.Equal(t, before[3:5], page)

	// A redelivery from payment's archive finds what was done.
	again := delivery(3)
	again.Record.Topic = event.RedeliveryTopic("g")
	out, ran, err := l.once(again, nil)
	require.NoError(t, err)
	require.False(t, ran)
	require.Equal(t, inbox.Duplicate, out)
	out, ran, err = l.once(otherBody(again), nil)
	require.NoError(t, err)
	require.False(t, ran)
	require.Equal(t, inbox.Conflict, out)

	// And an effect that was lost can be applied again.
	require.NoError(t, l.tx(func(tx *gorm.DB) error { return inbox.Reapply(t.Context(), tx, "g", delivery(3).Record, "a-1") }))
	require.EqualValues(t, 6, l.rows("t_message_consume_archive"))
	require.EqualValues(t, 8, l.claim().Event.AggregateVersion)
	d := l.claim()
	require.Equal(t, "a-1", d.ReplayID)
	require.Equal(t, delivery(3).Record, d.Record)
}

func TestAnArchivedEventIsHandledAgainOnNoRoad(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	_, _, err := l.once(delivery(1), nil)
	require.NoError(t, err)
	l.age(31)
	again := delivery(1)
	again.Record.Topic = event.RedeliveryTopic("g")

	// Sent again to this group, while an archiver has the row in its hands.
	archiver := l.db.Begin()
	require.NoError(t, archiver.Exec(`INSERT INTO t_message_consume_archive SELECT consumer_group, event_id, event_type, aggregate_id, aggregate_version,
		request_hash, status, outcome, result_ref, retry_count, replay_id, topic, partition, "offset", first_received_at, updated_at, now()
		FROM t_message_consume`).Error)
	require.NoError(t, archiver.Exec("DELETE FROM t_message_consume").Error)
	done := make(chan error, 1)
	go func() {
		out, ran, err := l.once(again, nil)
		if err == nil && (ran || out != inbox.Duplicate) {
			err = fmt.Errorf("it is %q, and ran: %v", out, ran)
		}
		done <- err
	}()
	testkit.Eventually(t, time.Minute, func() error {
		if l.count("pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 0 {
			return errors.New("nobody waits for the archiver")
		}
		return nil
	})
	require.NoError(t, archiver.Commit().Error)
	require.NoError(t, <-done)

	// And to all groups, as when its row of the outbox is released long after.
	out, ran, err := l.once(delivery(1), nil)
	require.NoError(t, err)
	require.False(t, ran)
	require.Equal(t, inbox.Duplicate, out)
	require.EqualValues(t, []int64{0, 1}, []int64{l.rows("t_message_consume"), l.rows("t_message_consume_archive")}, "it stands in one place")
	_, err = inbox.Archive(t.Context(), l.db, "g", month)
	require.NoError(t, err)
}

func TestWhatIsYoungerThanAnyWindowNeedsNoLookIntoTheArchive(t *testing.T) {
	t.Parallel()
	d := delivery(1)
	require.True(t, inbox.MayBeArchived(d))
	d.Event.Time = time.Now().Add(-6 * day)
	require.False(t, inbox.MayBeArchived(d))
	d.Record.Topic = event.RedeliveryTopic("g")
	require.True(t, inbox.MayBeArchived(d))
}

func TestArchiveThatEndsBetweenCopyAndDeleteLeavesEachRowInOnePlace(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	for v := int64(1); v <= 9; v++ {
		_, _, err := l.once(delivery(v), nil)
		require.NoError(t, err)
	}
	l.age(40)
	for _, sql := range []string{`CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$
	    BEGIN IF (SELECT count(*) FROM t_message_consume_archive) > 3 THEN RAISE EXCEPTION 'killed'; END IF; RETURN old; END $$`,
		"CREATE TRIGGER die BEFORE DELETE ON t_message_consume FOR EACH ROW EXECUTE FUNCTION die()"} {
		require.NoError(t, l.db.Exec(sql).Error)
	}
	_, err := inbox.Archive(t.Context(), l.db, "g", month)
	require.ErrorContains(t, err, "killed")
	require.EqualValues(t, 3, l.rows("t_message_consume_archive"))
	require.EqualValues(t, 6, l.rows("t_message_consume"))

	// A copy that says something else is never taken for the row.
	require.NoError(t, l.db.Exec("DROP TRIGGER die ON t_message_consume").Error)
	require.NoError(t, l.db.Exec(`INSERT INTO t_message_consume_archive SELECT consumer_group, event_id, event_type, aggregate_id, aggregate_version,
		'another hash', status, outcome, result_ref, retry_count, replay_id, topic, partition, "offset", first_received_at, updated_at, now()
		FROM t_message_consume`).Error)
	_, err = inbox.Archive(t.Context(), l.db, "g", month)
	require.ErrorContains(t, err, "nothing is deleted")
	require.EqualValues(t, 6, l.rows("t_message_consume"))

	require.NoError(t, l.db.Exec("DELETE FROM t_message_consume_archive WHERE request_hash = 'another hash'").Error)
	moved, err := inbox.Archive(t.Context(), l.db, "g", month)
	require.NoError(t, err)
	require.Equal(t, 6, moved)
	_, err = inbox.Archive(t.Context(), l.db, "g", archive.Retention{Window: 6 * day, Kafka: 7 * day, Replay: day})
	require.ErrorContains(t, err, "too short")
}
