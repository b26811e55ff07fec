package consumer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/kafka"
)

// watchEvery is how often offsets and counts are read.
const watchEvery = 5 * time.Second

// watch keeps the gauges true, and notices partitions that do not move and messages that wait for nothing, until ctx ends.
func (c *consumer) watch(ctx context.Context) error {
	for held := ""; ; {
		held = c.mend(ctx, held)
		c.look(ctx)
		if !sleep(ctx, watchEvery) {
			return nil
		}
	}
}

// mend brings back messages of the lane that nothing else would wake. It looks at a part of what is held, behind the
// given event, and tells where the next look goes on.
func (c *consumer) mend(ctx context.Context, after string) string {
	ctx, cancel := context.WithTimeout(ctx, 4*watchEvery)
	defer cancel()
	freed, next, err := inbox.Mend(ctx, c.DB, c.Group, after)
	if err != nil && ctx.Err() == nil {
		c.log.Warn("looking for messages that wait for nothing", "group", c.Group, "error", scrub(err))
	} else if freed > 0 {
		c.log.Warn("messages of the retry lane waited for nothing, and are due now: somebody has edited the consume log", "group", c.Group, "messages", freed)
		c.nudge()
	}
	return next
}

// sweep deletes closed dead letters and archives finished rows, each after its time, until ctx ends.
func (c *consumer) sweep(ctx context.Context) error {
	for {
		c.archive(ctx)
		if n, err := inbox.Sweep(ctx, c.DB, c.Group, c.LetterRetention); err != nil && ctx.Err() == nil {
			c.log.Warn("deleting old dead letters", "group", c.Group, "error", scrub(err))
		} else if n > 0 {
			c.log.Info("old dead letters deleted", "group", c.Group, "letters", n)
		}
		if !sleep(ctx, cmp.Or(c.SweepEvery, time.Hour)) {
			return nil
		}
	}
}

// archive moves old finished rows of the consume log. One process of the group is enough; several do no harm.
func (c *consumer) archive(ctx context.Context) {
	if c.ArchiveAfter == 0 {
		return
	}
	if moved, err := inbox.Archive(ctx, c.DB, c.Group, c.keep()); err != nil && ctx.Err() == nil {
		c.log.Warn("archiving the consume log", "group", c.Group, "error", scrub(err))
	} else if moved > 0 {
		c.log.Info("consume log rows archived", "group", c.Group, "rows", moved)
	}
}

func (c *consumer) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 4*watchEvery)
	defer cancel()
	if counts, err := inbox.Count(ctx, c.DB, c.Group); err == nil {
		c.metrics.letters.Set(float64(counts.OpenLetters))
		for status, rows := range counts.Lane {
			c.metrics.lane.WithLabelValues(string(status)).Set(float64(rows))
		}
	} else if ctx.Err() == nil {
		c.log.Warn("reading the consume log's counts", "group", c.Group, "error", scrub(err))
	}
	lag := map[int32]int64{}
	var oldest time.Duration
	for _, topic := range []string{event.Topic, event.RedeliveryTopic(c.Group)} {
		positions, err := kafka.Positions(ctx, c.Brokers, c.Group, topic)
		if err != nil {
			if ctx.Err() == nil {
				c.log.Warn("reading the group's offsets", "group", c.Group, "topic", topic, "error", err)
			}
			return // the last values stand, and readiness looks at how old they are
		}
		for p, at := range positions {
			lag[p] += max(at.Lag, 0)
			if !at.Oldest.IsZero() {
				oldest = max(oldest, time.Since(at.Oldest))
			}
			c.movement.note(fmt.Sprintf("%s/%d", topic, p), at.Committed, at.Lag)
		}
	}
	c.movement.heard()
	total := int64(0)
	for p, n := range lag {
		total += n
		c.metrics.lag.WithLabelValues(strconv.Itoa(int(p))).Set(float64(n))
	}
	c.lag.Store(total)
	c.metrics.oldest.Set(oldest.Seconds())
}

// movement knows for how long each partition has stood still with work to do.
type movement struct {
	mu    sync.Mutex
	told  time.Time // when Kafka last said where the group stands, or the start
	still map[string]standstill
}

type standstill struct {
	committed int64
	since     time.Time
	ahead     bool
}

func (m *movement) heard() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = time.Now()
}

func (m *movement) note(partition string, committed, lag int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.still == nil {
		m.still = map[string]standstill{}
	}
	was, known := m.still[partition]
	switch {
	case lag == 0:
		delete(m.still, partition)
	case lag < 0: // the group is ahead of the topic, which was made anew or has lost records: nothing will move again
		m.still[partition] = standstill{committed: committed, ahead: true}
	case !known || was.ahead || was.committed != committed:
		m.still[partition] = standstill{committed: committed, since: time.Now()}
	}
}

// err names a partition that has not moved for longer than limit although it lags. Where Kafka has not told for so long,
// nobody knows whether one does.
func (m *movement) err(limit time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := time.Since(m.told); d > limit {
		return fmt.Errorf("kafka has not told for %s where the group stands", d.Round(time.Second))
	}
	for _, partition := range slices.Sorted(maps.Keys(m.still)) {
		at := m.still[partition]
		if at.ahead {
			return fmt.Errorf("%s has no offset %d, which the group has committed: records are lost or the topic was made anew; reconcile, then set the group's offset", partition, at.committed)
		}
		if d := time.Since(at.since); d > limit {
			return fmt.Errorf("%s lags and has not moved from offset %d for %s", partition, at.committed, d.Round(time.Second))
		}
	}
	return nil
}

// ready tells the truth to /readyz.
func (c *consumer) ready(context.Context) error {
	if err := c.pauses.err(); err != nil {
		return err
	}
	if c.breaker.open() {
		return errManyFailures
	}
	return c.movement.err(c.Stuck)
}
