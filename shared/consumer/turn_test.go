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
