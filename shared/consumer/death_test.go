package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/testkit"
)

// start runs a member as an operating-system process. how is the subcommand.
func (w *world) start(how, attempts string) *testkit.Process {
	w.t.Helper()
	return w.launch(how, attempts, w.url, testkit.FreeAddr(w.t))
}

func (w *world) launch(how, attempts, url, opsAddr string) *testkit.Process {
	w.t.Helper()
	// What the process before has left in the lane is free at once: it is not there any more.
	require.NoError(w.t, w.db.Exec("UPDATE t_message_consume SET lease_until = now() - interval '1 second' WHERE status = 'PROCESSING'").Error)
	return testkit.Exec(w.t, "./testdata/member", map[string]string{
		"DATABASE_URL": url, "KAFKA_BROKERS": w.broker.Brokers(), "OPS_ADDR": opsAddr, "OPS_TOKEN": token,
		"KAFKA_SESSION_TIMEOUT": "2s", "CONSUMER_HANDLER_TIMEOUT": "10m", "CONSUMER_LEASE": "1h", "CONSUMER_ATTEMPTS": attempts,
		"CONSUMER_BACKOFF": "10ms", "CONSUMER_MAX_BACKOFF": "100ms", "CONSUMER_RETRY_POLL": "50ms",
	}, how)
}

func TestAMessageThatEndsItsProcessIsADeadLetterAndItsNeighboursPass(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"each", "batches"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			deadly := paid("deadly")
			for i := range 20 {
				if i == 12 {
					w.send(deadly, consumertest.Canceled("deadly", "ann"))
				}
				w.send(paid(fmt.Sprint("order-", i)))
			}
			for deaths := 1; w.dies(w.start(how, "4")); deaths++ {
				// Once when nobody expected it, in a batch once more in company, three times in a row as the first of its
				// partition, and in the lane in the attempt that was left of four.
				require.LessOrEqual(t, deaths, 6)
			}
			require.EqualValues(t, 20, w.count("SELECT count(*) FROM t_effect"))
			require.EqualValues(t, 20, w.count("SELECT count(DISTINCT order_no) FROM t_effect"))
			require.EqualValues(t, 1, w.count(`SELECT count(*) FROM t_dead_letter
				WHERE error_class = 'crashes_consumer' AND event_id = ? AND payload = ? AND attempts = 4`, deadly.ID, deadly.Payload))
			require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_dead_letter"))
			w.eventually("what comes after it in its order is held", func() bool { return w.rows("WAITING") == 1 })
		})
	}
}

// dies reports whether p died before everything was decided.
func (w *world) dies(p *testkit.Process) (died bool) {
	w.t.Helper()
	testkit.Eventually(w.t, 2*within, func() error {
		select {
		case <-p.Done():
			died = true
			return nil
		default:
		}
		if w.rows("DEAD") == 0 || w.rows("SUCCESS") < 20 {
			return errors.New("it lives, and not everything is decided")
		}
		return nil
	})
	return died
}

func TestKillsFromOutsideParkNothing(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"each", "batches"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			open := w.gate("TRIGGER gate BEFORE INSERT ON t_effect FOR EACH ROW WHEN (NEW.order_no = 'unlucky')")
			w.send(paid("unlucky"), paid("behind"))
			for range 4 {
				p := w.start(how, "10")
				w.arrives()
				w.killed(p)
			}
			p := w.start(how, "10")
			w.arrives()
			w.eventually("it no longer holds up other orders", func() bool { return w.rows("SUCCESS") == 1 })
			w.killed(p)
			open()
			w.start(how, "10")
			w.eventually("it is done", func() bool { return w.rows("SUCCESS") == 2 })
			require.EqualValues(t, 2, w.count("SELECT count(*) FROM t_effect"))
			require.Zero(t, w.count("SELECT count(*) FROM t_dead_letter"))
		})
	}
}

func TestWhatIsLeftByADeadProcessIsTriedAgainOneByOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	first := w.run(consumer.InTransaction(func(context.Context, *gorm.DB, event.Event) error {
		return consumer.Transient(errors.New("not yet"))
	}), func(c *consumer.Config) { c.Backoff, c.MaxBackoff, c.FailuresInARow = time.Hour, time.Hour, 10 })
	w.send(paid("o-1"), paid("o-2"), paid("o-3"), paid("o-4"))
	w.eventually("they are in the lane", func() bool { return w.rows("RETRY") == 4 })
	require.NoError(t, first.Stop())
	require.NoError(t, w.db.Exec(`UPDATE t_message_consume SET status = 'PROCESSING', owner_token = 'gone',
		lease_until = now() - interval '1 second', next_retry_at = NULL`).Error)
	var inHand, most atomic.Int64
	w.run(consumer.InTransaction(func(_ context.Context, tx *gorm.DB, e event.Event) error {
		most.Store(max(most.Load(), inHand.Add(1)))
		defer inHand.Add(-1)
		return errors.Join(tx.Exec("SELECT pg_sleep(0.1)").Error, effect(tx, e))
	}), func(c *consumer.Config) { c.HandlerTimeout, c.Lease, c.Workers = time.Minute, 2*time.Minute, 4 })
	w.eventually("all are done", func() bool { return w.rows("SUCCESS") == 4 })
	require.EqualValues(t, 1, most.Load(), "the one that the process died of has no company to take with it")
}

func TestNeitherPausesNorStopsCountAsDeaths(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.send(paid("o-1"))
	for range 5 {
		var tries atomic.Int64
		task := w.run(consumer.InTransaction(func(context.Context, *gorm.DB, event.Event) error {
			tries.Add(1)
			return consumer.Down(errors.New("for a while"))
		}), nil)
		w.eventually("it is in hand again and again", func() bool { return tries.Load() > 4 })
		require.NoError(t, task.Stop())
	}
	require.Zero(t, w.count("SELECT count(*) FROM t_message_consume"), "it is still the partition's")
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_message_in_hand WHERE times = 0"))
}
