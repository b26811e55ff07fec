package consumer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
)

// adding is a handler whose cancellations wait for the versions before them.
func adding() consumer.Handler {
	g := consumer.NewGuard(prometheus.NewRegistry(), group, consumer.Gaps{event.OrderCanceled: consumer.Awaited})
	return consumer.InTransaction(g.Before(func(_ context.Context, tx *gorm.DB, e event.Event) error { return effect(tx, e) }))
}

// effects are the order's effects, in the order in which they were made.
func (w *world) effects(order string) (types []string) {
	w.t.Helper()
	require.NoError(w.t, w.db.Raw("SELECT event_type FROM t_effect WHERE order_no = ? ORDER BY ctid", order).Scan(&types).Error)
	return types
}

func TestAnAwaitedVersionWaitsAndIsAppliedInOrderWhenTheMissingOneComes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.run(adding(), nil)
	w.send(consumertest.Canceled("o-1", "ann"), paid("o-2"))
	w.eventually("another order is not held up", func() bool { return w.rows("SUCCESS") == 1 && w.rows("WAITING") == 1 })
	require.Empty(t, w.effects("o-1"))
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_message_retry WHERE error_text = 'version 3 is here and version 1 is missing'"))
	w.send(paid("o-1"))
	w.eventually("both", func() bool { return w.rows("SUCCESS") == 3 })
	require.Equal(t, []string{event.PaymentSucceeded, event.OrderCanceled}, w.effects("o-1"))
	require.Zero(t, w.count("SELECT sum(retry_count) FROM t_message_consume"), "waiting is no failure")
}

func TestAnAwaitedVersionIsADeadLetterWithItsReasonAfterTheLongestWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.run(adding(), func(c *consumer.Config) { c.MaxWait = time.Millisecond })
	w.send(consumertest.Canceled("o-1", "ann"), paid("o-2"))
	w.eventually("the letter", func() bool {
		return w.count(`SELECT count(*) FROM t_dead_letter WHERE aggregate_id = 'o-1' AND error_class = 'waiting'
			AND error_text = 'version 3 is here and version 1 is missing'`) == 1
	})
	w.eventually("another order is done", func() bool { return len(w.effects("o-2")) == 1 })
	require.Empty(t, w.effects("o-1"))
}

func TestAVersionWhoseForerunnerIsArchivedDoesNotWaitForIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.run(adding(), nil)
	w.send(paid("o-1"))
	w.eventually("the payment", func() bool { return w.rows("SUCCESS") == 1 })
	require.NoError(t, w.db.Exec(`
		WITH old AS (DELETE FROM t_message_consume RETURNING *)
		INSERT INTO t_message_consume_archive (consumer_group, event_id, event_type, aggregate_id, aggregate_version, request_hash,
			status, outcome, retry_count, topic, partition, "offset", first_received_at, updated_at)
		SELECT consumer_group, event_id, event_type, aggregate_id, aggregate_version, request_hash,
			status, outcome, retry_count, topic, partition, "offset", first_received_at, updated_at FROM old`).Error)
	w.send(consumertest.Canceled("o-1", "ann"))
	w.eventually("the cancellation", func() bool { return w.rows("SUCCESS") == 1 })
	require.Len(t, w.effects("o-1"), 2)
}

func TestAVersionWhoseForerunnerAnOperatorSkippedDoesNotWaitForIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	g := consumer.NewGuard(prometheus.NewRegistry(), group, consumer.Gaps{event.OrderCanceled: consumer.Awaited})
	w.run(consumer.InTransaction(g.Before(func(_ context.Context, tx *gorm.DB, e event.Event) error {
		if e.Type == event.PaymentSucceeded {
			return consumer.BadData(errors.New("no"))
		}
		return effect(tx, e)
	})), func(c *consumer.Config) { c.SkipDead = []string{event.PaymentSucceeded} })
	w.send(paid("o-1"), consumertest.Canceled("o-1", "ann"))
	w.eventually("the cancellation", func() bool { return w.rows("SUCCESS") == 1 && w.rows("DEAD") == 1 })
}

func TestAGapIsHealedFromItsOwnerOrNothingIsRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	var x index
	var asked, answers atomic.Int64 // the version that the owner has; 0: it does not answer
	g := consumer.NewGuard(prometheus.NewRegistry(), group, consumer.Gaps{
		event.PaymentSucceeded: consumer.Healed(func(ctx context.Context, e event.Event) (int64, error) {
			asked.Add(1)
			if answers.Load() == 0 {
				return 0, consumer.Down(errors.New("no answer"))
			}
			e.AggregateVersion = answers.Load()
			return e.AggregateVersion, x.write(ctx, e)
		}),
	})
	w.run(consumer.Outside(func(ctx context.Context, e event.Event) error {
		last, _ := x.state(e.AggregateID)
		if err := g.Admit(ctx, last, e); err != nil {
			return err
		}
		return x.write(ctx, e)
	}), nil)
	w.send(paid("o-1"), paid("o-2"))
	w.eventually("it has been asked again", func() bool { return asked.Load() >= 3 })
	require.Zero(t, w.count("SELECT count(*) FROM t_message_consume"), "the trouble is not the message's")
	version, _ := x.state("o-1")
	require.Zero(t, version, "nothing is applied half")

	answers.Store(5)
	w.eventually("success", func() bool { return w.rows("SUCCESS") == 2 })
	version, _ = x.state("o-1")
	require.EqualValues(t, 5, version)
	require.EqualValues(t, 2, w.count("SELECT count(*) FROM t_message_consume WHERE outcome = 'superseded' AND retry_count = 0"))
}

func TestAGapIsNeverHealedInsideATransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	g := consumer.NewGuard(prometheus.NewRegistry(), group, consumer.Gaps{
		event.PaymentSucceeded: consumer.Healed(func(context.Context, event.Event) (int64, error) {
			t.Error("it talks over the network while a transaction is open")
			return 2, nil
		}),
	})
	w.run(consumer.InTransaction(g.Before(func(_ context.Context, tx *gorm.DB, e event.Event) error { return effect(tx, e) })),
		func(c *consumer.Config) { c.Attempts = 1 })
	w.send(paid("o-1"))
	w.eventually("a letter that says so", func() bool {
		return w.count("SELECT count(*) FROM t_dead_letter WHERE error_text LIKE '%cannot be healed inside a transaction'") == 1
	})
	require.Empty(t, w.effects("o-1"))
}
