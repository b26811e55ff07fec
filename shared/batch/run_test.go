package batch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"example.com/paycast/shared/batch"
	"example.com/paycast/shared/batch/internal/effect"
	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

// handlers are both kinds; whatever is promised is promised with each.
var handlers = map[string]consumer.Handler{"each": consumer.InTransaction(effect.Each), "all": consumer.Batched(effect.All)}

func TestManyEventsShareATransactionAndEachHasItsEffectOnceInItsOrder(t *testing.T) {
	t.Parallel()
	for name, h := range handlers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			var events []event.Event
			for i := range 100 {
				events = append(events, versions(fmt.Sprint("O-", i%10), 10)[i/10])
			}
			w.send(events...)
			w.run(h, nil)
			w.drained()
			require.EqualValues(t, 100, w.effects())
			require.EqualValues(t, 100, w.rows("SUCCESS"))
			require.Less(t, w.transactions(), int64(50))
			w.requireOrder()
		})
	}
}

func TestDuplicatesAndConflictsInsideABatchAreWhatTheyAreOneByOne(t *testing.T) {
	t.Parallel()
	for name, h := range handlers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			e := versions("O-1", 3)
			other := consumertest.Order("O-1", "bob")
			conflict := consumertest.Event(event.PaymentSucceeded, other)
			conflict.ID = e[1].ID
			garbage := event.Record{Key: []byte("O-1"), Value: []byte("{")}
			w.send(e[0], e[0], e[1], conflict, e[1])
			testkit.Produce(t, w.broker.Brokers(), event.Topic, garbage)
			w.send(e[2], e[0])
			w.run(h, nil)
			w.drained()
			require.EqualValues(t, 3, w.effects())
			require.EqualValues(t, 3, w.rows("SUCCESS"))
			w.requireOrder()
			require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_dead_letter WHERE error_class = 'conflict' AND first_hash = ?", e[1].Hash()))
			require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_dead_letter WHERE error_class = 'undecodable'"))

			w.send(e...) // and once more, in another batch
			w.drained()
			require.EqualValues(t, 3, w.effects())
			require.EqualValues(t, 2, w.count("SELECT count(*) FROM t_dead_letter"))
		})
	}
}

func TestOnePoisonMessageAmongAHundredIsTheOnlyOneWithoutEffect(t *testing.T) {
	t.Parallel()
	for name := range handlers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			poison := versions("O-37", 1)[0].ID
			h := consumer.InTransaction(func(ctx context.Context, tx *gorm.DB, e event.Event) error {
				if err := effect.Each(ctx, tx, e); err != nil || e.ID != poison {
					return err
				}
				return errors.New("cannot be handled")
			})
			if name == "all" {
				h = consumer.Batched(func(ctx context.Context, tx *gorm.DB, events []event.Event) error {
					for _, e := range events {
						if e.ID == poison {
							panic("cannot be handled")
						}
					}
					return effect.All(ctx, tx, events)
				})
			}
			var events []event.Event
			for i := range 100 {
				events = append(events, versions(fmt.Sprint("O-", i), 1)...)
			}
			w.send(events...)
			w.run(h, nil)
			w.drained()
			require.EqualValues(t, 99, w.effects())
			require.EqualValues(t, 99, w.rows("SUCCESS"))
			require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_message_consume c JOIN t_message_retry USING (consumer_group, event_id) WHERE status = 'RETRY' AND event_id = ?", poison))
			require.Less(t, w.transactions(), int64(50), "the neighbours still share transactions")
		})
	}
}

func TestVersionsBehindAFailedOneWaitForItAndOtherOrdersDoNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	bad, good := versions("O-bad", 4), versions("O-good", 4)
	var events []event.Event
	for i := range 4 {
		events = append(events, bad[i], good[i])
	}
	w.send(events...)
	w.run(consumer.InTransaction(func(ctx context.Context, tx *gorm.DB, e event.Event) error {
		if e.ID == bad[1].ID {
			return errors.New("not now")
		}
		return effect.Each(ctx, tx, e)
	}), nil)
	w.drained()
	require.EqualValues(t, 4, w.count("SELECT count(*) FROM t_effect WHERE order_no = 'O-good'"))
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_effect WHERE order_no = 'O-bad'"))
	require.EqualValues(t, 1, w.rows("RETRY"))
	require.EqualValues(t, 2, w.count("SELECT count(*) FROM t_message_consume WHERE status = 'WAITING' AND held_by IN (?, ?)", bad[1].ID, bad[2].ID))
}

func TestAnswersWithoutEffectAndReferencesStandInTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	e := versions("O-1", 3)
	w.send(e...)
	w.run(consumer.InTransaction(func(ctx context.Context, tx *gorm.DB, got event.Event) error {
		switch got.ID {
		case e[0].ID:
			return consumer.Ignored
		case e[1].ID:
			consumer.Made(ctx, "thing 7")
		}
		return effect.Each(ctx, tx, got)
	}), nil)
	w.drained()
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_message_consume WHERE event_id = ? AND outcome = 'ignored' AND result_ref IS NULL", e[0].ID))
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_message_consume WHERE event_id = ? AND outcome = 'applied' AND result_ref = 'thing 7'", e[1].ID))
	require.EqualValues(t, 2, w.effects())
}

func TestMessagesThatWereCommittedAndNotAckedHaveTheirEffectOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.send(versions("O-1", 50)...)
	w.run(consumer.Batched(effect.All), nil)
	w.drained()
	// A second world of the same database, whose broker has heard of no ack: what a kill between both leaves behind.
	again := *w
	again.broker = testkit.Kafka(t, event.Topic+":1", event.RedeliveryTopic(group)+":1")
	again.send(versions("O-1", 60)...)
	again.run(consumer.Batched(effect.All), nil)
	again.drained()
	require.EqualValues(t, 60, w.effects())
	w.requireOrder()
}

func TestWhenTheDatabaseIsAtFaultNothingIsRecordedAgainstTheMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.send(versions("O-1", 20)...)
	var down atomic.Bool
	down.Store(true)
	tried := make(chan struct{}, 2)
	w.run(consumer.Batched(func(ctx context.Context, tx *gorm.DB, events []event.Event) error {
		if down.Load() {
			select {
			case tried <- struct{}{}:
			default:
			}
			return consumer.Down(errors.New("no connection"))
		}
		return effect.All(ctx, tx, events)
	}), func(c *batch.Config) { c.Backoff = 1e6 })
	<-tried
	<-tried
	require.Zero(t, w.count("SELECT count(*) FROM t_message_consume"))
	down.Store(false)
	w.drained()
	require.EqualValues(t, 20, w.effects())
	require.EqualValues(t, 20, w.rows("SUCCESS"))
	w.requireOrder()
}

func TestTwoMembersWithARebalanceInTheMiddleOfABatchGiveEachEffectOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	var events []event.Event
	for i := range 200 {
		events = append(events, versions(fmt.Sprint("O-", i%20), 10)[i/20])
	}
	w.send(events...)
	inside, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	small := func(c *batch.Config) { c.Size, c.Window, c.Backoff = 10, 40, 10*time.Millisecond }
	w.run(consumer.Batched(func(ctx context.Context, tx *gorm.DB, events []event.Event) error {
		once.Do(func() {
			close(inside)
			<-goOn // the batch stays open while its partition may go to the other member, which then waits for it
		})
		return effect.All(ctx, tx, events)
	}), small)
	<-inside
	w.run(consumer.Batched(effect.All), small)
	w.joined(4) // the first process has let go of its partitions although its batch is open
	close(goOn)
	w.requireAllOnce(200)
}

// What a member that has lost its partition leaves open, the next owner's batch waits for.
func TestABatchBehindAnOpenTransactionOfOneOfItsOrdersWaitsAndNothingIsCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	events := ofOrders(5, 4)
	w.send(events...)
	tx := w.db.Begin()
	require.NoError(t, tx.Error)
	t.Cleanup(func() { tx.Rollback() })
	out, err := inbox.Once(t.Context(), tx, inbox.Delivery{Group: group, Event: events[0]}, func(tx *gorm.DB) (inbox.Outcome, error) {
		return inbox.Applied, effect.Each(t.Context(), tx, events[0])
	})
	require.NoError(t, err)
	require.Equal(t, inbox.Applied, out)
	w.run(handlers["all"], func(c *batch.Config) {
		c.HandlerTimeout, c.Lease = 4*time.Second, time.Minute // the lane finishes what takes longer on a slow machine
		c.Backoff, c.MaxBackoff, c.Attempts = 10*time.Millisecond, time.Second, 1000
	})
	w.notReady(event.Topic + "/0: another delivery of the same order is under way")
	require.Zero(t, w.count("SELECT count(*) FROM t_message_consume"), "the handler has not run for any of them")
	require.NoError(t, tx.Commit().Error)
	w.requireAllOnce(20)
}

// The messages of all partitions come through one channel, and what a lost session has left lies before the new one's.
func TestAPartitionThatIsHeldUpHoldsUpNoOtherWhateverRebalancesThereAreMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.send(ofOrders(20, 2)...)
	held, other := w.partition(0), w.partition(1)
	inside, goOn := make(chan struct{}), make(chan struct{})
	enter := sync.OnceFunc(func() { close(inside) })
	w.run(consumer.InTransaction(func(ctx context.Context, tx *gorm.DB, e event.Event) error {
		if e.ID == held[0].ID {
			enter()
			<-goOn
		}
		return effect.Each(ctx, tx, e)
	}), func(c *batch.Config) { c.Size, c.Window = 1, 2 })
	<-inside
	for members := 3; members <= 4; members++ {
		s, err := batch.NewSubscriber(kafka.SubscriberConfig{Brokers: w.broker.Brokers(), ClientID: "test", Group: group, Session: session}, 1)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		_, err = s.Subscribe(t.Context(), event.RedeliveryTopic(group)) // it gets none of the partitions, but all are given anew
		require.NoError(t, err)
		w.joined(members)
	}
	last := versions(other[0].AggregateID, 3)[2]
	w.send(last)
	testkit.Eventually(t, within, func() error {
		if w.count("SELECT count(*) FROM t_effect WHERE order_no = ? AND version = 3", last.AggregateID) == 0 {
			return errors.New("the other partition stands still")
		}
		return nil
	})
	close(goOn)
	w.requireAllOnce(41)
}

func TestAnEffectThatCannotShareATransactionIsRefused(t *testing.T) {
	t.Parallel()
	outside := consumer.Outside(func(context.Context, event.Event) error { return nil })
	require.ErrorContains(t, batch.Run(nil, batch.Config{}, outside), "cannot share a transaction")
}

func TestTheLogRefusesABatchOutsideATransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	_, err := inbox.Together(t.Context(), w.db, []inbox.Delivery{{}}, nil)
	require.ErrorIs(t, err, inbox.ErrNoTransaction)
}

// statements counts what goes to the database through a handle.
type statements struct {
	logger.Interface
	atomic.Int64
}

func (s *statements) Trace(context.Context, time.Time, func() (string, int64), error) { s.Add(1) }

func TestTheLogOfABatchCostsAsManyStatementsForAHundredEventsAsForOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	cost := func(events []event.Event) int64 {
		var count statements
		count.Interface = w.db.Logger
		err := postgres.Transaction(t.Context(), w.db.Session(&gorm.Session{Logger: &count}), func(tx *gorm.DB) error {
			ds := make([]inbox.Delivery, len(events))
			for i, e := range events {
				ds[i] = inbox.Delivery{Group: group, Event: e, Result: new(string)}
				*ds[i].Result = "each with a reference"
			}
			_, err := inbox.Together(t.Context(), tx, ds, func(_ *gorm.DB, fresh []inbox.Delivery) ([]inbox.Outcome, error) {
				outcomes := make([]inbox.Outcome, len(fresh))
				for i := range outcomes {
					outcomes[i] = inbox.Ignored
				}
				return outcomes, nil
			})
			return err
		})
		require.NoError(t, err)
		return count.Load()
	}
	require.EqualValues(t, 3, cost(versions("O-one", 1)), "the locks, the rows, and what the handler has said of them")
	require.EqualValues(t, 3, cost(versions("O-many", 100)))
	require.EqualValues(t, 101, w.rows("SUCCESS"))
}

func TestArchivedEventsThatAreSentAgainToTheGroupAreNotAppliedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	events := versions("O-1", 20) // more than one, so that they come together
	w.send(events...)
	w.run(handlers["all"], nil)
	w.drained()
	require.EqualValues(t, len(events), w.effects())
	require.NoError(t, w.db.Exec(`
		WITH old AS (DELETE FROM t_message_consume RETURNING consumer_group, event_id, event_type, aggregate_id, aggregate_version,
			request_hash, status, outcome, result_ref, retry_count, topic, partition, "offset", first_received_at, updated_at)
		INSERT INTO t_message_consume_archive (consumer_group, event_id, event_type, aggregate_id, aggregate_version,
			request_hash, status, outcome, result_ref, retry_count, topic, partition, "offset", first_received_at, updated_at)
		SELECT * FROM old`).Error)
	var again []event.Record
	for _, e := range events {
		again = append(again, consumertest.Record(e))
	}
	testkit.Produce(t, w.broker.Brokers(), event.RedeliveryTopic(group), again...)
	testkit.Eventually(t, within, func() error {
		if testkit.CommittedOffset(t, w.broker.Brokers(), group, event.RedeliveryTopic(group), 0) != int64(len(events)) {
			return errors.New("not acked yet")
		}
		return nil
	})
	require.EqualValues(t, len(events), w.effects())
}
