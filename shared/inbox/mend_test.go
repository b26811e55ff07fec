package inbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/inbox"
)

// mend looks through all that is held, and tells how many rows it has freed.
func (l log) mend() (freed int) {
	l.t.Helper()
	n, next, err := inbox.Mend(l.t.Context(), l.db, "g", "")
	require.NoError(l.t, err)
	require.Empty(l.t, next)
	return n
}

func TestARowThatWaitsForNothingIsFreedAndApplied(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]string{
		"what holds it is gone":            "DELETE FROM t_message_consume WHERE event_id = 'event-2'",
		"what holds it is done":            "UPDATE t_message_consume SET status = 'SUCCESS', outcome = 'applied', next_retry_at = NULL WHERE event_id = 'event-2'",
		"what holds it is refused":         "UPDATE t_message_consume SET status = 'REJECTED', outcome = 'refused', next_retry_at = NULL WHERE event_id = 'event-2'",
		"what holds it is skipped":         "UPDATE t_message_consume SET status = 'DEAD', skipped = true, next_retry_at = NULL WHERE event_id = 'event-2'",
		"what holds it is behind it":       "UPDATE t_message_consume SET aggregate_version = 4 WHERE event_id = 'event-2'",
		"what holds it is elsewhere":       "UPDATE t_message_consume SET aggregate_id = 'o-2' WHERE event_id = 'event-2'",
		"what holds it is another group's": "UPDATE t_message_consume SET consumer_group = 'h' WHERE event_id = 'event-2'",
		"it holds itself": `DELETE FROM t_message_consume WHERE event_id = 'event-2';
			UPDATE t_message_consume SET held_by = event_id WHERE event_id = 'event-3'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLog(t)
			l.bring(2, inbox.StatusRetry) // for an hour
			_, _, err := l.once(delivery(3), nil)
			require.NoError(t, err)
			require.Equal(t, "event-2", l.row(3).HeldBy)
			require.NoError(t, l.db.Exec("DELETE FROM t_message_retry WHERE event_id = 'event-2'").Error)
			require.NoError(t, l.db.Exec(edit).Error)
			require.Nil(t, l.claim(), "nothing else wakes it")

			require.Equal(t, 1, l.mend())
			d := l.claim()
			require.NotNil(t, d)
			require.Equal(t, "event-3", d.Event.ID)
			out, _, err := l.once(*d, nil)
			require.NoError(t, err)
			require.Equal(t, inbox.Applied, out)
			require.EqualValues(t, 1, l.row(3).Effects)
			require.Zero(t, l.mend())
		})
	}
}

func TestARowThatWaitsWithReasonIsNotFreed(t *testing.T) {
	t.Parallel()
	for _, s := range []inbox.Status{inbox.StatusProcessing, inbox.StatusRetry, inbox.StatusWaiting, inbox.StatusDead} {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			l := newLog(t)
			l.bring(1, s)
			for v := int64(2); v <= 4; v++ { // each behind the one before
				_, _, err := l.once(delivery(v), nil)
				require.NoError(t, err)
			}
			before := l.text()
			require.Zero(t, l.mend())
			require.Equal(t, before, l.text())
		})
	}
}

// text is the whole log, with every column.
func (l log) text() (rows []string) {
	l.t.Helper()
	require.NoError(l.t, l.db.Raw("SELECT c::text FROM t_message_consume c ORDER BY event_id").Scan(&rows).Error)
	return rows
}

func TestARowThatIsFreedTooEarlyIsHeldAgainUncounted(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.bring(1, inbox.StatusDead)
	_, _, err := l.once(delivery(2), nil)
	require.NoError(t, err)
	held := l.row(2)
	for range 3 {
		require.NoError(t, l.db.Exec("UPDATE t_message_consume SET held_by = 'gone' WHERE event_id = 'event-2'").Error)
		require.Equal(t, 1, l.mend())
		out, ran, err := l.once(*l.claim(), nil)
		require.NoError(t, err)
		require.Equal(t, inbox.Waiting, out)
		require.False(t, ran)
		require.Equal(t, held, l.row(2))
		require.Zero(t, l.mend())
	}
}

func TestARowThatSomebodyElseHasInHandIsPassedOver(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.bring(1, inbox.StatusRetry)
	_, _, err := l.once(delivery(2), nil)
	require.NoError(t, err)
	require.NoError(t, l.db.Exec("UPDATE t_message_consume SET held_by = 'gone' WHERE event_id = 'event-2'").Error)
	other := l.db.Begin()
	require.NoError(t, other.Error)
	defer other.Rollback()
	require.NoError(t, other.Exec("SELECT FROM t_message_consume WHERE event_id = 'event-2' FOR UPDATE").Error)
	require.Zero(t, l.mend())
	require.NoError(t, other.Rollback().Error)
	require.Equal(t, 1, l.mend())
}

// However much is held, a call looks at a slice of it, and the next one goes on behind.
func TestWhatIsHeldIsLookedThroughSliceBySlice(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.bring(1, inbox.StatusDead)
	require.NoError(t, l.db.Exec(`INSERT INTO t_message_consume (consumer_group, event_id, event_type, aggregate_id, aggregate_version,
		request_hash, status, held_by, topic, partition, "offset")
		SELECT 'g', 'held-' || i, 'OrderCreated', 'o-1', 2 + i, 'h', 'WAITING', CASE WHEN i % 500 = 0 THEN 'gone' ELSE 'event-1' END, 't', 0, i
		FROM generate_series(1, 2500) i`).Error)
	var all, calls int
	for next := ""; ; {
		freed, after, err := inbox.Mend(t.Context(), l.db, "g", next)
		require.NoError(t, err)
		require.LessOrEqual(t, freed, 5)
		all, calls = all+freed, calls+1
		if after == "" {
			break
		}
		require.Greater(t, after, next)
		next = after
	}
	require.Equal(t, 5, all)
	require.Equal(t, 3, calls)
	var due int64
	require.NoError(t, l.db.Raw("SELECT count(*) FROM t_message_consume WHERE status = 'WAITING' AND next_retry_at <= now()").Scan(&due).Error)
	require.EqualValues(t, 5, due)
}
