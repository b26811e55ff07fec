package batch

import (
	"context"
	"slices"
	"sync"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/event"
)

// line works off one partition. There is never more than one batch of it under way, so its order stays.
type line struct {
	consumer.Member
	size int
	name string

	mu    sync.Mutex
	queue []item
	some  chan struct{} // tells that there may be something in the queue; of size 1
}

// put never waits, because the messages of all partitions come one after the other. What the subscriber gives out bounds
// the queue: a window, and another one for each session that is lost while a batch is under way.
func (l *line) put(i item) {
	l.mu.Lock()
	l.queue = append(l.queue, i)
	l.mu.Unlock()
	select {
	case l.some <- struct{}{}:
	default:
	}
}

// next takes what is there, up to a batch. What a lost session has left is not worth a place in it.
func (l *line) next() []item {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = slices.DeleteFunc(l.queue, item.lost)
	n := min(l.size, len(l.queue))
	items := slices.Clone(l.queue[:n])
	l.queue = slices.Delete(l.queue, 0, n)
	return items
}

// work takes batch after batch, until stop ends. Unacked messages come again after the restart.
func (l *line) work(stop, work context.Context) {
	for {
		select {
		case <-stop.Done():
			return
		case <-l.some:
		}
		for items := l.next(); len(items) > 0 && stop.Err() == nil; items = l.next() {
			l.settle(stop, work, items)
		}
	}
}

// settle takes all items to a committed decision. While nothing can be recorded it keeps what is left, and with it the
// partition, until the partition is lost or the process is told to stop.
func (l *line) settle(stop, work context.Context, items []item) {
	defer l.GoOn(l.name)
	for failed := 1; ; failed++ {
		// After a rebalance the next owner has them, from the first unacked one on.
		items = slices.DeleteFunc(items, item.lost)
		left, err := l.take(work, items)
		if err == nil || stop.Err() != nil || len(left) == 0 {
			return
		}
		pause, end := context.WithTimeout(left[0].Context(), l.Pause(l.name, failed, err))
		select {
		case <-stop.Done():
			end()
			return
		case <-pause.Done():
			end()
		}
		items = left
	}
}

// take acks what it has taken to a committed decision, and with an error gives back what is left, in order.
//
// A batch that fails is cut in half, and each half tried for itself, down to one message. That one goes the ordinary
// way: it alone is recorded as failed, and the messages behind it in its order wait for it.
func (l *line) take(ctx context.Context, items []item) (left []item, err error) {
	switch len(items) {
	case 0:
		return nil, nil
	case 1:
		return l.oneByOne(ctx, items)
	}
	records := make([]event.Record, len(items))
	for i := range items {
		records[i] = items[i].record
	}
	done, err := l.Together(ctx, records)
	switch {
	case err == nil:
		var rest []item
		for i := range items {
			if done[i] {
				items[i].Ack()
			} else {
				rest = append(rest, items[i])
			}
		}
		return l.oneByOne(ctx, rest)
	case ctx.Err() != nil || consumer.NobodysFault(err):
		return items, err
	}
	half := len(items) / 2
	if left, err := l.take(ctx, items[:half:half]); err != nil {
		return append(left, items[half:]...), err
	}
	return l.take(ctx, items[half:])
}

func (l *line) oneByOne(ctx context.Context, items []item) (left []item, err error) {
	for i := range items {
		if err := l.Deliver(ctx, items[i].record); err != nil {
			return items[i:], err
		}
		items[i].Ack()
	}
	return nil, nil
}
