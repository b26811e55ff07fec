package consumer_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
)

// index is a store outside the database that keeps the highest version of each order, as Elasticsearch does.
type index struct {
	mu       sync.Mutex
	versions map[string]int64
	writes   int
}

func (x *index) write(_ context.Context, e event.Event) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writes++
	if x.versions == nil {
		x.versions = map[string]int64{}
	}
	if e.AggregateVersion < x.versions[e.AggregateID] {
		return consumer.Superseded
	}
	x.versions[e.AggregateID] = e.AggregateVersion
	return nil
}

func (x *index) state(order string) (version int64, writes int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.versions[order], x.writes
}

func TestAnOlderVersionIsSuperseded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	var x index
	w.run(consumer.Outside(x.write), nil)
	w.send(consumertest.Canceled("o-1", "ann"), paid("o-1"))
	w.eventually("both are done", func() bool { return w.rows("SUCCESS") == 2 })
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_message_consume WHERE outcome = 'superseded' AND aggregate_version = 2"))
	version, _ := x.state("o-1")
	require.EqualValues(t, 3, version)
}

func TestWhatWasWrittenOutsideIsWrittenAgainWhenItsLogFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	var x index
	var recorded atomic.Int64
	w.run(consumer.Outside(x.write).Then(func(_ context.Context, tx *gorm.DB, e event.Event) error {
		if recorded.Add(1) == 1 {
			return errors.New("the first time it fails")
		}
		return effect(tx, e)
	}), nil)
	w.send(paid("o-1"))
	w.eventually("success", func() bool { return w.rows("SUCCESS") == 1 })
	_, writes := x.state("o-1")
	require.Equal(t, 2, writes, "never the log first: a crash would lose the write")
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_effect"))
}

func TestNeitherAConflictNorAHeldVersionIsSeenOutside(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	var x index
	w.run(consumer.Outside(func(ctx context.Context, e event.Event) error {
		if e.AggregateID == "bad" && e.AggregateVersion == 2 {
			return errors.New("no")
		}
		return x.write(ctx, e)
	}), func(c *consumer.Config) { c.Attempts = 1 })
	forged := paid("o-1")
	forged.Payload = []byte(`{"forged":true}`)
	w.send(paid("o-1"), forged, paid("bad"), consumertest.Canceled("bad", "ann"))
	w.eventually("the conflict is parked and the later version is held", func() bool {
		return w.count("SELECT count(*) FROM t_dead_letter WHERE error_class = 'conflict'") == 1 && w.rows("WAITING") == 1
	})
	_, writes := x.state("bad")
	require.Equal(t, 1, writes)
}

func TestADeadEventOfASkippedTypeHoldsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	var x index
	w.run(consumer.Outside(func(ctx context.Context, e event.Event) error {
		if e.Type == event.PaymentSucceeded {
			return consumer.BadData(errors.New("no"))
		}
		return x.write(ctx, e)
	}), func(c *consumer.Config) { c.SkipDead = []string{event.PaymentSucceeded} })
	w.send(paid("o-1"), consumertest.Canceled("o-1", "ann"))
	w.eventually("the cancellation went on", func() bool { return w.rows("SUCCESS") == 1 && w.rows("DEAD") == 1 })
	version, _ := x.state("o-1")
	require.EqualValues(t, 3, version)
}
