package inbox_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/lease"
)

func TestTheMessageComesBackFromTheLaneByteForByte(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	sent := delivery(1)
	sent.Record.Headers = append(sent.Record.Headers, event.Header{Key: "x\xff"}, event.Header{Key: "x\xff", Value: []byte{}})
	_, err := l.fail(sent, inbox.Failure{Outcome: inbox.Retry})
	require.NoError(t, err)
	require.Equal(t, sent.Record, l.claim().Record)
}

func TestVersionsLeaveTheLaneInOrder(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.bring(1, inbox.StatusRetry)
	for v := int64(2); v <= 4; v++ {
		out, _, err := l.once(delivery(v), nil)
		require.NoError(t, err)
		require.Equal(t, inbox.Waiting, out)
	}
	require.Nil(t, l.claim(), "held rows are not due")
	l.dueNow()
	for v := int64(1); v <= 4; v++ {
		d := l.claim()
		require.NotNil(t, d)
		require.Equal(t, v, d.Event.AggregateVersion)
		require.Nil(t, l.claim(), "the next one is due only when this one is done")
		_, ran, err := l.once(*d, nil)
		require.NoError(t, err)
		require.True(t, ran)
	}
}

func TestAVersionClaimedBesideAnEarlierOneStepsBack(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.bring(2, inbox.StatusRetry) // it came first, and failed
	l.bring(1, inbox.StatusRetry) // then the earlier one came, and failed as well
	l.dueNow()
	first, second := l.claim(), l.claim()
	if first.Event.AggregateVersion == 2 {
		first, second = second, first
	}
	out, ran, err := l.once(*second, nil)
	require.NoError(t, err)
	require.Equal(t, inbox.Waiting, out)
	require.False(t, ran)
	require.Equal(t, 1, l.row(2).RetryCount, "stepping back is not a failure")
	_, ran, err = l.once(*first, nil)
	require.NoError(t, err)
	require.True(t, ran)
	require.EqualValues(t, 2, l.claim().Event.AggregateVersion)
}

func TestSuccessWakesWhatWaitedForIt(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.bring(3, inbox.StatusWaiting) // for an hour
	require.Nil(t, l.claim())
	_, _, err := l.once(delivery(2), nil)
	require.NoError(t, err)
	require.EqualValues(t, 3, l.claim().Event.AggregateVersion)
}

func TestALateSettleOfATakenOverClaimChangesNothing(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	_, err := l.fail(delivery(1), inbox.Failure{Outcome: inbox.Retry})
	require.NoError(t, err)
	short := lease.Rule{Lease: time.Millisecond}
	d, err := inbox.Claim(t.Context(), l.db, "g", short)
	require.NoError(t, err)
	late := l.decoded(d)
	require.Eventually(t, func() bool {
		d, err = inbox.TakeOver(context.Background(), l.db, "g", rule)
		return err == nil && d != nil
	}, time.Minute, 5*time.Millisecond)
	owner := l.decoded(d)
	require.Equal(t, 2, owner.Failed, "the attempt that never came back counts")
	before := l.row(1)

	_, ran, err := l.once(*late, nil)
	require.ErrorIs(t, err, inbox.ErrFenced)
	require.False(t, ran)
	_, err = l.fail(*late, inbox.Failure{Outcome: inbox.Dead})
	require.ErrorIs(t, err, inbox.ErrFenced)
	require.ErrorIs(t, inbox.GiveBack(t.Context(), l.db, *late, 0), inbox.ErrFenced)
	require.Equal(t, before, l.row(1))

	_, ran, err = l.once(*owner, nil)
	require.NoError(t, err)
	require.True(t, ran)
	require.EqualValues(t, 1, l.row(1).Effects)
}

func TestWhatIsGivenBackIsNotCounted(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	_, err := l.fail(delivery(1), inbox.Failure{Outcome: inbox.Retry})
	require.NoError(t, err)
	for range 5 {
		d := l.claim()
		require.NotNil(t, d)
		require.NoError(t, inbox.GiveBack(t.Context(), l.db, *d, 0))
	}
	require.Equal(t, 1, l.row(1).RetryCount)
}

func TestManyWorkersClaimEachMessageOnce(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	const messages, workers = 100, 8
	for v := range int64(messages) {
		d := delivery(v + 1)
		d.Event.AggregateID = d.Event.ID // an aggregate each
		_, err := l.fail(d, inbox.Failure{Outcome: inbox.Retry})
		require.NoError(t, err)
	}
	var claims sync.Map
	var total atomic.Int64
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for {
				d, err := inbox.Claim(context.Background(), l.db, "g", rule)
				if err != nil || d == nil {
					if err != nil {
						t.Error(err)
					}
					return
				}
				if _, twice := claims.LoadOrStore(d.Event.ID, true); twice {
					t.Errorf("%s was claimed twice", d.Event.ID)
				}
				total.Add(1)
			}
		})
	}
	running.Wait()
	require.EqualValues(t, messages, total.Load())
}

func TestTwentyDeliveriesAtOnceRunTheHandlerOnce(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	var ran, duplicates atomic.Int64
	var running sync.WaitGroup
	for range 20 {
		running.Go(func() {
			out, r, err := l.once(delivery(1), nil)
			if err != nil {
				t.Error(err)
			}
			if r {
				ran.Add(1)
			}
			if out == inbox.Duplicate {
				duplicates.Add(1)
			}
		})
	}
	running.Wait()
	require.EqualValues(t, 1, ran.Load())
	require.EqualValues(t, 19, duplicates.Load())
	require.EqualValues(t, 1, l.row(1).Effects)
}

// dueNow makes the whole lane due.
func (l log) dueNow() {
	l.t.Helper()
	require.NoError(l.t, l.db.Exec("UPDATE t_message_consume SET next_retry_at = now() WHERE next_retry_at IS NOT NULL").Error)
}

// A partial index that a statement's condition does not imply is passed over without a word, and the statement reads
// the whole log once per message.
func TestNoStepReadsTheWholeLog(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	require.NoError(t, l.db.Exec(`INSERT INTO t_message_consume (consumer_group, event_id, event_type, aggregate_id, aggregate_version,
		request_hash, status, outcome, topic, partition, "offset")
		SELECT 'g', 'e'||i, 'OrderCreated', 'o'||(i/4), 1+i%4, 'h', 'SUCCESS', 'applied', 't', 0, i FROM generate_series(1,50000) i`).Error)
	require.NoError(t, l.db.Exec("ANALYZE").Error)
	pool, err := l.db.DB()
	require.NoError(t, err)
	pool.SetMaxOpenConns(1) // the statistics are those of a connection until it flushes them
	scans := func() (n int64) {
		require.NoError(t, l.db.Exec("SELECT pg_stat_force_next_flush()").Error)
		require.NoError(t, l.db.Raw("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 't_message_consume'").Scan(&n).Error)
		return n
	}
	before := scans()
	_, _, err = l.once(delivery(1), nil)
	require.NoError(t, err)
	_, _, err = l.once(delivery(1), nil)
	require.NoError(t, err)
	_, err = l.fail(delivery(2), inbox.Failure{Outcome: inbox.Retry})
	require.NoError(t, err)
	clear, err := inbox.Clear(t.Context(), l.db, delivery(3))
	require.NoError(t, err)
	require.False(t, clear)
	_, _, err = l.once(delivery(3), nil)
	require.NoError(t, err)
	_, _, err = l.once(*l.claim(), nil)
	require.NoError(t, err)
	_, err = l.fail(*l.claim(), inbox.Failure{Outcome: inbox.Dead})
	require.NoError(t, err)
	_, err = inbox.Expired(t.Context(), l.db, "g")
	require.NoError(t, err)
	_, err = inbox.TakeOver(t.Context(), l.db, "g", rule)
	require.NoError(t, err)
	_, err = inbox.Take(t.Context(), l.db, delivery(4))
	require.NoError(t, err)
	_, _, err = l.once(delivery(5), nil) // behind the dead one
	require.NoError(t, err)
	_, _, err = inbox.Mend(t.Context(), l.db, "g", "")
	require.NoError(t, err)
	require.NoError(t, l.tx(func(tx *gorm.DB) error { return inbox.Discard(t.Context(), tx, "g", l.letterIn(tx), why) }))
	_, err = inbox.Log(t.Context(), l.db, "g", inbox.Filter{OrderNo: "o-1", Limit: 10})
	require.NoError(t, err)
	_, err = inbox.Count(t.Context(), l.db, "g")
	require.NoError(t, err)
	_, err = inbox.Facts(t.Context(), l.db, "g", "", 100, nil)
	require.NoError(t, err)
	require.Equal(t, before, scans())
}

func (l log) letterIn(tx *gorm.DB) (id int64) {
	l.t.Helper()
	require.NoError(l.t, tx.Raw("SELECT letter_id FROM t_dead_letter").Scan(&id).Error)
	return id
}

func TestARowWithoutItsMessageStopsNoOther(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	_, err := l.fail(delivery(1), inbox.Failure{Outcome: inbox.Retry})
	require.NoError(t, err)
	other := delivery(2)
	other.Event.AggregateID = "o-2"
	other.Record.Key, other.Record.Headers = []byte("o-2"), other.Event.Headers()
	_, err = l.fail(other, inbox.Failure{Outcome: inbox.Retry})
	require.NoError(t, err)
	require.NoError(t, l.db.Exec("DELETE FROM t_message_retry WHERE event_id = 'event-1'").Error)
	told := func() string { // to the reconciler, which reports what stays unfinished
		facts, err := inbox.Facts(t.Context(), l.db, "g", "", 10, []string{"event-1"})
		require.NoError(t, err)
		require.Len(t, facts, 1)
		return facts[0].Status
	}
	require.Equal(t, "RETRY", told())
	d := l.claim()
	require.NotNil(t, d)
	require.Equal(t, "event-2", d.Event.ID)

	require.NoError(t, l.db.Exec(`UPDATE t_message_consume SET status = 'PROCESSING', owner_token = 'gone', next_retry_at = NULL,
		lease_until = now() - CASE event_id WHEN 'event-1' THEN interval '2 hours' ELSE interval '1 hour' END`).Error)
	d, err = inbox.TakeOver(t.Context(), l.db, "g", rule)
	require.NoError(t, err)
	d = l.decoded(d)
	require.NotNil(t, d)
	require.Equal(t, "event-2", d.Event.ID)
	_, _, err = l.once(*d, nil)
	require.NoError(t, err)
	expired, err := inbox.Expired(t.Context(), l.db, "g")
	require.NoError(t, err)
	require.False(t, expired)
	require.Equal(t, "PROCESSING", told())
}

func TestARowWhoseCountIsAtTheEndOfItsRangeStopsNoOther(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.bring(1, inbox.StatusRetry)
	require.NoError(t, l.db.Exec("UPDATE t_message_consume SET retry_count = 2147483647, next_retry_at = now() - interval '1 day'").Error)
	d := l.claim()
	require.NotNil(t, d)
	require.Greater(t, d.Failed, 1_000_000, "it has no attempts left")
	require.NoError(t, l.db.Exec("UPDATE t_message_consume SET retry_count = 2147483647, lease_until = now() - interval '1 day'").Error)
	d, err := inbox.TakeOver(t.Context(), l.db, "g", rule)
	require.NoError(t, err)
	require.NotNil(t, d)
	out, err := l.fail(*l.decoded(d), inbox.Failure{Outcome: inbox.Dead})
	require.NoError(t, err)
	require.Equal(t, inbox.Dead, out)
	require.EqualValues(t, 1, l.row(1).Letters)

	require.NoError(t, l.db.Exec("UPDATE t_dead_letter SET attempts = 2147483647").Error)
	require.NoError(t, l.tx(func(tx *gorm.DB) error { return inbox.Release(t.Context(), tx, "g", l.letterIn(tx), why) }))
	out, err = l.fail(*l.claim(), inbox.Failure{Outcome: inbox.Dead})
	require.NoError(t, err)
	require.Equal(t, inbox.Dead, out)

	_, err = inbox.Take(t.Context(), l.db, delivery(2))
	require.NoError(t, err)
	require.NoError(t, l.db.Exec("UPDATE t_message_in_hand SET times = 2147483647").Error)
	times, err := inbox.Take(t.Context(), l.db, delivery(2))
	require.NoError(t, err)
	require.Greater(t, times, 1_000_000)
}

// TestHowLongAMessageHasWaitedIsNeverNegative: a database that took over may be behind, and a time written by hand far off.
// The next attempt would be due before it was asked for, again and again.
func TestHowLongAMessageHasWaitedIsNeverNegative(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	for came, least := range map[string]time.Duration{
		"now() + interval '1 hour'": 0, "'9999-12-30'": 0, "now() - interval '1 hour'": time.Hour, "'0002-01-01'": 200 * 365 * day,
	} {
		require.NoError(t, l.db.Exec("DELETE FROM t_message_consume").Error)
		l.bring(1, inbox.StatusWaiting)
		require.NoError(t, l.db.Exec("UPDATE t_message_consume SET next_retry_at = now(), first_received_at = "+came).Error)
		require.GreaterOrEqual(t, l.claim().Waited, least, came)
	}
}
