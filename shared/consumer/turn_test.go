package consumer_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

// A slow member has lost its partition, and its transaction is still open when the next owner has the message.
func TestWaitingForAnotherMembersTransactionIsNoFailedAttempt(t *testing.T) {
	t.Parallel()
	const short = 2 * time.Second // so that the group soon gives up on the slow one
	for how, ending := range map[string]error{"it commits": nil, "it rolls back": consumer.Down(errors.New("cut off"))} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			var slow, next atomic.Int64
			gate := make(chan struct{})
			open := sync.OnceFunc(func() { close(gate) })
			w.run(consumer.InTransaction(func(_ context.Context, tx *gorm.DB, e event.Event) error {
				slow.Add(1)
				<-gate
				return errors.Join(effect(tx, e), ending)
			}), func(c *consumer.Config) { c.HandlerTimeout, c.Lease, c.Session = 10*time.Minute, time.Hour, short })
			t.Cleanup(open)
			w.send(paid("o-1"))
			w.eventually("the first member has it in hand", func() bool { return slow.Load() == 1 })
			w.run(consumer.InTransaction(func(_ context.Context, tx *gorm.DB, e event.Event) error {
				next.Add(1)
				return effect(tx, e)
			}), func(c *consumer.Config) {
				c.HandlerTimeout, c.Lease, c.Attempts, c.Session = 4*time.Second, time.Minute, 1, short
			})
			w.notReady(event.Topic + "/0: another delivery of the same order is under way")
			require.Zero(t, w.count("SELECT count(*) FROM t_message_consume"), "nothing is recorded")

			open()
			w.eventually("the group has acked it", func() bool {
				return testkit.CommittedOffset(t, w.broker.Brokers(), group, event.Topic, 0) == 1
			})
			require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_effect"))
			require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_message_consume WHERE status = 'SUCCESS' AND retry_count = 0"))
			require.Zero(t, w.count("SELECT count(*) FROM t_message_retry"))
			require.Zero(t, w.count("SELECT count(*) FROM t_dead_letter"))
			if ending == nil {
				require.Zero(t, next.Load(), "the effect was there already")
			}
			w.ready()
		})
	}
}

func TestAMessageOfTheLaneThatWaitsInVainIsGivenBackUncounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	require.NoError(t, w.db.Exec(`CREATE SEQUENCE given_back; CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM nextval('given_back'); RETURN NULL; END $$;
		CREATE TRIGGER f AFTER UPDATE ON t_message_consume FOR EACH ROW
		WHEN (OLD.status = 'PROCESSING' AND OLD.retry_count = 2 AND NEW.status = 'RETRY') EXECUTE FUNCTION f()`).Error)
	db, err := postgres.Open(t.Context(), w.url+"&lock_timeout=100ms", "consumer")
	require.NoError(t, err)
	var runs atomic.Int64
	w.run(consumer.InTransaction(func(_ context.Context, tx *gorm.DB, e event.Event) error {
		if runs.Add(1) == 1 {
			return errors.New("not now")
		}
		return effect(tx, e)
	}), func(c *consumer.Config) { c.DB, c.Attempts, c.Backoff, c.MaxBackoff = db, 2, time.Hour, time.Hour })
	w.send(paid("o-1"))
	w.eventually("it is in the lane", func() bool { return w.rows("RETRY") == 1 })
	due := func() {
		require.NoError(t, w.db.Exec("UPDATE t_message_consume SET next_retry_at = now() WHERE status = 'RETRY'").Error)
	}
	other := w.db.Begin() // of the same order
	require.NoError(t, other.Error)
	defer other.Rollback()
	require.NoError(t, other.Exec("SELECT pg_advisory_xact_lock(hashtextextended('g/o-1', 0))").Error)
	w.eventually("it has been given back twice", func() bool {
		due()
		return w.count("SELECT last_value FROM given_back") > 1
	})
	require.NoError(t, other.Rollback().Error)
	w.eventually("it is done", func() bool {
		due()
		return w.rows("SUCCESS") == 1
	})
	require.EqualValues(t, 2, runs.Load())
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_message_consume WHERE retry_count = 1"))
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_effect"))
}
