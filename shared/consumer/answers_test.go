package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
)

func TestAHandlerThatFailsTwiceIsRunThreeTimesAndSeesItsAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	var attempts []consumer.Delivery // one message, so one at a time
	w.run(consumer.InTransaction(func(ctx context.Context, tx *gorm.DB, e event.Event) error {
		d := consumer.DeliveryOf(ctx)
		attempts = append(attempts, d)
		if d.Attempt < 3 {
			return errors.New("not now")
		}
		consumer.Made(ctx, "entry-7")
		return effect(tx, e)
	}), nil)
	w.send(paid("o-1"))
	w.eventually("success", func() bool { return w.rows("SUCCESS") == 1 })
	require.Len(t, attempts, 3)
	require.Equal(t, consumer.FromTopic, attempts[0].Mode)
	require.Equal(t, consumer.FromLane, attempts[2].Mode)
	require.Equal(t, 3, attempts[2].Attempt)
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_message_consume WHERE retry_count = 2 AND result_ref = 'entry-7'"))
	require.Zero(t, w.count("SELECT count(*) FROM t_message_retry"))
}

func TestARefusedMessageIsRecordedAndNotTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	var runs atomic.Int64
	w.run(consumer.InTransaction(func(context.Context, *gorm.DB, event.Event) error {
		runs.Add(1)
		return consumer.Refused(errors.New("the account is closed"))
	}), nil)
	w.send(paid("o-1"), consumertest.Canceled("o-1", "ann"))
	w.eventually("both are refused, and the first holds nobody", func() bool { return w.rows("REJECTED") == 2 })
	require.EqualValues(t, 2, runs.Load())
	require.Zero(t, w.count("SELECT count(*) FROM t_dead_letter"))
}

func TestAMessageThatWaitsTooLongIsADeadLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.run(consumer.InTransaction(func(context.Context, *gorm.DB, event.Event) error {
		return consumer.Waiting(errors.New("for what never comes"))
	}), func(c *consumer.Config) { c.MaxWait = 300 * time.Millisecond })
	w.send(paid("o-1"))
	w.eventually("it is dead", func() bool { return w.rows("DEAD") == 1 })
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_dead_letter WHERE error_class = 'waiting'"))
}

func TestAHandlerThatHangsHasFailedAndHoldsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.run(consumer.InTransaction(func(ctx context.Context, tx *gorm.DB, e event.Event) error {
		if e.AggregateID == "hangs" {
			<-ctx.Done()
			return ctx.Err()
		}
		return effect(tx, e)
	}), func(c *consumer.Config) { c.HandlerTimeout, c.Attempts = 4*time.Second, 2 })
	w.send(paid("hangs"), paid("o-1"))
	w.eventually("the next is done", func() bool { return w.rows("SUCCESS") == 1 })
	w.eventually("the hanging one is dead", func() bool { return w.rows("DEAD") == 1 })
}

func TestADeadlockRunsTheWholeHandlerAgainAndCountsNothing(t *testing.T) {
	t.Parallel()
	for name, trigger := range map[string]string{
		"40P01 in the handler": `CREATE TRIGGER f BEFORE INSERT ON t_effect FOR EACH ROW EXECUTE FUNCTION f('40P01')`,
		"40001 at COMMIT":      `CREATE CONSTRAINT TRIGGER f AFTER INSERT ON t_effect DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION f('40001')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			require.NoError(t, w.db.Exec(`CREATE SEQUENCE s; CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF nextval('s') < 3 THEN RAISE EXCEPTION 'again' USING ERRCODE = TG_ARGV[0]; END IF; RETURN NEW; END $$; `+trigger).Error)
			var runs atomic.Int64
			w.run(consumer.InTransaction(func(_ context.Context, tx *gorm.DB, e event.Event) error {
				runs.Add(1)
				return effect(tx, e)
			}), nil)
			w.send(paid("o-1"))
			w.eventually("success", func() bool { return w.rows("SUCCESS") == 1 })
			require.EqualValues(t, 3, runs.Load())
			require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_effect"))
			require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_message_consume WHERE retry_count = 0"))
		})
	}
}

func TestACommitWhoseAnswerIsLostIsSettledByLooking(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		fails int64  // so many attempts
		table string // written by the commit
		state string // of the row that it leaves
	}{
		"of a success":           {0, "t_effect", "SUCCESS"},
		"of a failed attempt":    {1, "t_message_retry", "RETRY"},
		"of a final dead letter": {4, "t_dead_letter", "DEAD"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			open := w.gate("CONSTRAINT TRIGGER gate AFTER INSERT ON " + c.table + " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW")
			link, db := w.proxied()
			var runs atomic.Int64
			w.run(consumer.InTransaction(func(_ context.Context, tx *gorm.DB, e event.Event) error {
				if e.AggregateID == "o-1" && runs.Add(1) <= c.fails {
					return errors.New("not now")
				}
				return effect(tx, e)
			}), func(cfg *consumer.Config) {
				if cfg.DB = db; c.state == "RETRY" {
					// Else the lane claims it before the link is whole, and the answer to that is lost as well.
					cfg.Backoff, cfg.MaxBackoff = time.Hour, time.Hour
				}
			})
			w.send(paid("o-1"))
			w.arrives() // COMMIT does
			link.CutAnswersAfter(0)
			open()
			w.eventually("it is committed", func() bool { return w.rows(c.state) == 1 })
			w.eventually("the consumer does not know", func() bool {
				status, _ := w.ops(http.MethodGet, "/readyz", "")
				return status == http.StatusServiceUnavailable
			})
			link.Heal()
			require.NoError(t, w.db.Exec("UPDATE t_message_consume SET next_retry_at = now() WHERE status = 'RETRY'").Error)
			w.send(paid("o-2"))
			w.eventually("all is decided", func() bool { return w.rows("SUCCESS")+w.rows("DEAD") == 2 })
			dead := w.rows("DEAD")
			require.EqualValues(t, 2-dead, w.count("SELECT count(*) FROM t_effect"))
			require.Equal(t, dead, w.count("SELECT count(*) FROM t_dead_letter"))
			require.EqualValues(t, min(c.fails+1, 4), runs.Load(), "what was committed did not run again")
			require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_message_consume WHERE aggregate_id = 'o-1' AND retry_count = ?", c.fails))
		})
	}
}

func TestManyFailuresInARowPauseThePartitionInsteadOfFillingTheLane(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 4} { // the limit is the process's, however many it reads
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, partitions)
			var mended atomic.Bool
			w.run(consumer.InTransaction(func(_ context.Context, tx *gorm.DB, e event.Event) error {
				if !mended.Load() {
					panic("a bad build")
				}
				return effect(tx, e)
			}), func(c *consumer.Config) { c.Attempts = 1000 }) // none of the first is dead before the third fails
			for _, order := range strings.Fields("a b c d e f g h i j") {
				w.send(paid(order))
			}
			w.notReady("in a row")
			w.eventually("the limit is in the lane", func() bool { return w.rows("RETRY")+w.rows("PROCESSING") == 3 })
			require.EqualValues(t, 3, w.count("SELECT count(*) FROM t_message_consume"), "and no more than that")
			mended.Store(true)
			w.eventually("all are done", func() bool { return w.rows("SUCCESS") == 10 })
			require.Zero(t, w.count("SELECT count(*) FROM t_dead_letter"))
			w.ready()
		})
	}
}

func TestWhatAHandlerCallsDownPausesAndCountsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	var up atomic.Bool
	var tries atomic.Int64
	w.run(consumer.Outside(func(context.Context, event.Event) error {
		tries.Add(1)
		if !up.Load() {
			return consumer.Down(errors.New("the index does not answer"))
		}
		return nil
	}), nil)
	w.send(paid("o-1"), paid("o-2"))
	w.eventually("it is tried again and again", func() bool { return tries.Load() > 6 })
	require.Zero(t, w.count("SELECT count(*) FROM t_message_consume"))
	w.notReady("the index does not answer")
	up.Store(true)
	w.eventually("both are done", func() bool { return w.rows("SUCCESS") == 2 })
	require.Zero(t, w.count("SELECT count(*) FROM t_message_consume WHERE retry_count > 0"))
}

// members is how many the group has.
func (w *world) members() int {
	w.t.Helper()
	client, err := kadm.NewOptClient(kgo.SeedBrokers(w.broker.Brokers()))
	require.NoError(w.t, err)
	defer client.Close()
	described, err := client.DescribeGroups(w.t.Context(), group)
	require.NoError(w.t, err)
	return len(described[group].Members)
}

func TestAPausedMemberLetsGoOfItsPartitionsWhenAnotherJoins(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	var tries atomic.Int64
	paused := w.run(consumer.Outside(func(context.Context, event.Event) error {
		tries.Add(1)
		return consumer.Down(errors.New("cut off from the index"))
	}), nil)
	for i := range 12 {
		w.send(paid(fmt.Sprint("order-", i)))
	}
	w.eventually("the first member is paused", func() bool { return tries.Load() > 8 })
	w.run(consumer.Outside(func(context.Context, event.Event) error { return nil }), nil)
	w.eventually("the other one works on its share", func() bool { return w.rows("SUCCESS") > 0 })
	require.Equal(t, 4, w.members(), "the group has not given up on the first one; each is a member once per topic")
	require.Less(t, w.rows("SUCCESS"), int64(12), "which still has the rest")
	require.NoError(t, paused.Stop())
	w.eventually("and then on everything", func() bool { return w.rows("SUCCESS") == 12 })
}
