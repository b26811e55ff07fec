package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/lease"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// log is a consume log of the test's own, with a table for effects that has no key of its own.
type log struct {
	t  testing.TB
	db *gorm.DB
}

func newLog(t testing.TB) log {
	db, err := postgres.Open(t.Context(), testkit.Postgres(t, inbox.Migrations), "test")
	require.NoError(t, err)
	t.Cleanup(func() { postgres.Close(db) })
	require.NoError(t, db.Exec("CREATE TABLE t_effect (event_id text NOT NULL)").Error)
	return log{t, db}
}

var rule = lease.Rule{Lease: time.Minute, Deadline: 10 * time.Second, Margin: time.Second}

// delivery is version v of order o-1, as it arrives from a partition.
func delivery(v int64) inbox.Delivery {
	e := event.Event{
		ID: fmt.Sprintf("event-%d", v), Type: event.OrderCreated, Version: 1, Source: "/test", AggregateType: event.AggregateOrder,
		AggregateID: "o-1", AggregateVersion: v, Time: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Payload: fmt.Appendf(nil, `{"v":%d}`, v),
	}
	return inbox.Delivery{Group: "g", Owner: "team", Event: e, Record: event.Record{
		Topic: event.Topic, Partition: 3, Offset: 100 + v, Time: e.Time, Key: []byte(e.AggregateID), Value: e.Payload, Headers: e.Headers()}}
}

// otherBody is the same event id with another payload, from another place.
func otherBody(d inbox.Delivery) inbox.Delivery {
	d.Event.Payload = []byte(`{"forged":true}`)
	d.Record.Value, d.Record.Offset = d.Event.Payload, d.Record.Offset+1000
	return d
}

// once delivers d to a handler that writes one effect and then answers err.
func (l log) once(d inbox.Delivery, err error) (out inbox.Outcome, ran bool, failed error) {
	failed = postgres.Transaction(context.Background(), l.db, func(tx *gorm.DB) error {
		var onceErr error
		out, onceErr = inbox.Once(context.Background(), tx, d, func(tx *gorm.DB) (inbox.Outcome, error) {
			ran = true
			if e := tx.Exec("INSERT INTO t_effect VALUES (?)", d.Event.ID).Error; e != nil {
				return "", e
			}
			return inbox.Applied, err
		})
		return onceErr
	})
	return out, ran, failed
}

func (l log) fail(d inbox.Delivery, f inbox.Failure) (out inbox.Outcome, err error) {
	f.Trouble = inbox.Trouble{Class: inbox.ClassTransient, Text: "the test"}
	err = postgres.Transaction(context.Background(), l.db, func(tx *gorm.DB) error {
		out, err = inbox.Fail(context.Background(), tx, d, f)
		return err
	})
	return out, err
}

// claim takes what is due and decodes it, as a worker does.
func (l log) claim() *inbox.Delivery {
	l.t.Helper()
	d, err := inbox.Claim(l.t.Context(), l.db, "g", rule)
	require.NoError(l.t, err)
	return l.decoded(d)
}

func (l log) decoded(d *inbox.Delivery) *inbox.Delivery {
	l.t.Helper()
	if d != nil {
		var err error
		d.Owner = "team"
		d.Event, err = event.Decode(d.Record)
		require.NoError(l.t, err)
	}
	return d
}

type row struct {
	Status, Outcome, HeldBy, RequestHash string
	RetryCount                           int
	Kept, Letters, Effects               int64
}

// row is all there is about version v.
func (l log) row(v int64) (r row) {
	l.t.Helper()
	id := delivery(v).Event.ID
	require.NoError(l.t, l.db.Raw(`SELECT status, coalesce(outcome, '') AS outcome, coalesce(held_by, '') AS held_by, request_hash, retry_count,
		(SELECT count(*) FROM t_message_retry m WHERE m.event_id = c.event_id) AS kept,
		(SELECT count(*) FROM t_dead_letter d WHERE d.event_id = c.event_id) AS letters,
		(SELECT count(*) FROM t_effect e WHERE e.event_id = c.event_id) AS effects
		FROM t_message_consume c WHERE event_id = ?`, id).Scan(&r).Error)
	return r
}

// bring puts version v into a state by the ways that lead there.
func (l log) bring(v int64, s inbox.Status) {
	l.t.Helper()
	d := delivery(v)
	var err error
	switch s {
	case inbox.StatusSuccess:
		_, _, err = l.once(d, nil)
	case inbox.StatusRetry:
		_, err = l.fail(d, inbox.Failure{Outcome: inbox.Retry, After: time.Hour})
	case inbox.StatusWaiting:
		_, err = l.fail(d, inbox.Failure{Outcome: inbox.Waiting, After: time.Hour})
	case inbox.StatusRejected:
		_, err = l.fail(d, inbox.Failure{Outcome: inbox.Refused})
	case inbox.StatusDead:
		_, err = l.fail(d, inbox.Failure{Outcome: inbox.Dead})
	case inbox.StatusProcessing:
		_, err = l.fail(d, inbox.Failure{Outcome: inbox.Retry})
		require.NoError(l.t, err)
		require.NotNil(l.t, l.claim())
	}
	require.NoError(l.t, err)
	require.Equal(l.t, string(s), l.row(v).Status)
}

var states = []inbox.Status{inbox.StatusSuccess, inbox.StatusRetry, inbox.StatusWaiting, inbox.StatusRejected, inbox.StatusDead, inbox.StatusProcessing}

func TestADeliveryThatTheLogKnowsRunsNothingAndLeavesTheRowAlone(t *testing.T) {
	t.Parallel()
	for _, s := range states {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			l := newLog(t)
			l.bring(1, s)
			before := l.row(1)

			out, ran, err := l.once(delivery(1), nil)
			require.NoError(t, err)
			require.Equal(t, inbox.Duplicate, out)
			require.False(t, ran)
			require.Equal(t, before, l.row(1))

			out, ran, err = l.once(otherBody(delivery(1)), nil)
			require.NoError(t, err)
			require.Equal(t, inbox.Conflict, out)
			require.False(t, ran)
			after := l.row(1)
			require.Equal(t, before.Letters+1, after.Letters)
			after.Letters = before.Letters
			require.Equal(t, before, after)
		})
	}
}

func TestALaterVersionRunsOnlyWhenNoEarlierOneIsUnfinished(t *testing.T) {
	t.Parallel()
	finished := map[inbox.Status]bool{inbox.StatusSuccess: true, inbox.StatusRejected: true}
	for _, s := range states {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			l := newLog(t)
			l.bring(1, s)
			out, ran, err := l.once(delivery(2), nil)
			require.NoError(t, err)
			require.Equal(t, finished[s], ran)
			if finished[s] {
				require.Equal(t, inbox.Applied, out)
				require.Equal(t, row{Status: "SUCCESS", Outcome: "applied", RequestHash: delivery(2).Event.Hash(), Effects: 1}, l.row(2))
				return
			}
			require.Equal(t, inbox.Waiting, out)
			require.Equal(t, row{Status: "WAITING", HeldBy: "event-1", RequestHash: delivery(2).Event.Hash(), Kept: 1}, l.row(2))
		})
	}
}

func TestTheAnswersOfAnAttemptFromAPartition(t *testing.T) {
	t.Parallel()
	for out, want := range map[inbox.Outcome]row{
		inbox.Retry:   {Status: "RETRY", RetryCount: 1, Kept: 1},
		inbox.Waiting: {Status: "WAITING", Kept: 1},
		inbox.Refused: {Status: "REJECTED", Outcome: "refused"},
		inbox.Dead:    {Status: "DEAD", RetryCount: 1, Letters: 1},
	} {
		t.Run(string(out), func(t *testing.T) {
			t.Parallel()
			l := newLog(t)
			got, err := l.fail(delivery(1), inbox.Failure{Outcome: out, After: time.Hour})
			require.NoError(t, err)
			require.Equal(t, out, got)
			want.RequestHash = delivery(1).Event.Hash()
			require.Equal(t, want, l.row(1))
		})
	}
}

func TestTheAnswersOfAnAttemptFromTheLane(t *testing.T) {
	t.Parallel()
	for out, want := range map[inbox.Outcome]row{
		inbox.Applied: {Status: "SUCCESS", Outcome: "applied", RetryCount: 1, Effects: 1},
		inbox.Retry:   {Status: "RETRY", RetryCount: 2, Kept: 1},
		inbox.Waiting: {Status: "WAITING", RetryCount: 1, Kept: 1},
		inbox.Refused: {Status: "REJECTED", Outcome: "refused", RetryCount: 1},
		inbox.Dead:    {Status: "DEAD", RetryCount: 2, Letters: 1},
	} {
		t.Run(string(out), func(t *testing.T) {
			t.Parallel()
			l := newLog(t)
			_, err := l.fail(delivery(1), inbox.Failure{Outcome: inbox.Retry})
			require.NoError(t, err)
			d := l.claim()
			require.Equal(t, 1, d.Failed)
			if out == inbox.Applied {
				_, _, err = l.once(*d, nil)
			} else {
				_, err = l.fail(*d, inbox.Failure{Outcome: out, After: time.Hour})
			}
			require.NoError(t, err)
			want.RequestHash = delivery(1).Event.Hash()
			require.Equal(t, want, l.row(1))
		})
	}
}

func TestAFailedHandlerLeavesNeitherRowNorEffect(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	_, _, err := l.once(delivery(1), errors.New("no"))
	require.Error(t, err)
	require.Equal(t, row{}, l.row(1))
	var effects int64
	require.NoError(t, l.db.Raw("SELECT count(*) FROM t_effect").Scan(&effects).Error)
	require.Zero(t, effects)
}

func TestAHandleOutsideATransactionIsRefused(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	ran := func(*gorm.DB) (inbox.Outcome, error) { t.Error("the handler ran"); return inbox.Applied, nil }
	_, err := inbox.Once(t.Context(), l.db, delivery(1), ran)
	require.ErrorIs(t, err, inbox.ErrNoTransaction)
	_, err = inbox.Fail(t.Context(), l.db, delivery(1), inbox.Failure{Outcome: inbox.Dead})
	require.ErrorIs(t, err, inbox.ErrNoTransaction)
	require.ErrorIs(t, inbox.Park(t.Context(), l.db, delivery(1), inbox.Trouble{}), inbox.ErrNoTransaction)
	_, err = inbox.Erase(t.Context(), l.db, "g", "ada", why)
	require.ErrorIs(t, err, inbox.ErrNoTransaction, "also when there is nothing to erase")
}
