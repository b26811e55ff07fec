package consumer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
)

// maxDeaths is how often a process may end with the same message of a partition in hand. Then the message leaves the
// partition for the retry lane, which counts such ends as attempts: nothing is parked that was only unlucky.
const maxDeaths = 3

var errDied = mark(inbox.ClassCrash, errors.New("the process ended each time that this message was in hand"))

// carefully is decide for a message of a partition. What was in hand when a process died is among the first that the
// next owner of the partition runs, so those alone are noted before they run: in a process that lives on, no message
// costs a write more.
func (c *consumer) carefully(ctx context.Context, d inbox.Delivery) (inbox.Outcome, error) {
	if !c.partitions.watched(d.Record) {
		return c.decide(ctx, d)
	}
	times, err := c.take(ctx, d)
	if err != nil {
		return "", err
	}
	if times == 0 { // it is a repetition
		return c.decide(ctx, d)
	}
	d.Failed = times - 1
	if d.Failed >= maxDeaths {
		return c.setAside(ctx, d)
	}
	out, err := c.decide(ctx, d)
	if err != nil {
		c.putDown(ctx, d)
		return "", err
	}
	c.partitions.ran(d.Record)
	return out, nil
}

// setAside records what became of the attempts in which the process died, without another one.
func (c *consumer) setAside(ctx context.Context, d inbox.Delivery) (inbox.Outcome, error) {
	d.Failed-- // judge and the log count the last one themselves
	f := c.judge(d, errDied)
	out, err := c.record(ctx, d, f)
	if err != nil {
		return "", fmt.Errorf("setting a message aside: %w", err)
	}
	c.report(ctx, d, out, f, errDied)
	return out, nil
}

// mayShare is what carefully does, for the first message of a batch, which stands for all of them. After a death in
// company each goes alone.
func (c *consumer) mayShare(ctx context.Context, first inbox.Delivery) (bool, error) {
	switch {
	case c.partitions.alone(first.Record):
		return false, nil
	case !c.partitions.watched(first.Record):
		return true, nil
	}
	times, err := c.take(ctx, first)
	if times > 1 {
		c.putDown(ctx, first) // it will be taken again, alone
	}
	return times == 1, err
}

func (c *consumer) take(ctx context.Context, d inbox.Delivery) (times int, err error) {
	ctx, cancel := context.WithTimeout(ctx, recordMargin)
	defer cancel()
	if times, err = inbox.Take(ctx, c.DB, d); err != nil {
		return 0, Down(err) // the handler has not been asked yet
	}
	if times > 1 {
		c.partitions.suspect(d.Record)
	}
	return times, nil
}

// putDown may fail, as when the database is down. The message is then noted once too often.
func (c *consumer) putDown(ctx context.Context, d inbox.Delivery) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := inbox.PutDown(ctx, c.DB, d); err != nil {
		c.log.WarnContext(ctx, "a message stays noted as in hand", "group", c.Group, "event_id", d.Event.ID, "error", scrub(err))
	}
}

// partitions are those that this process reads, and how far it has come in each.
type partitions struct {
	together int64 // so many messages of a partition may be in hand at a time
	mu       sync.Mutex
	at       map[partition]*progress
}

type partition struct {
	topic  string
	number int32
}

func place(r event.Record) partition { return partition{r.Topic, r.Partition} }

// progress is how far a partition has come in this process.
type progress struct {
	next       int64 // the offset after the last message that was decided about
	watchUntil int64 // whatever is in hand below it is noted
	aloneUntil int64 // a process has died in one of the messages below it
}

// enter is for the first of the messages that come next. Where the partition begins, or goes on behind a gap in which it
// was somebody else's, nothing is known of them.
func (p *partitions) enter(r event.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, known := p.at[place(r)]; known && r.Offset <= at.next {
		return
	}
	if p.at == nil {
		p.at = map[partition]*progress{}
	}
	p.at[place(r)] = &progress{next: r.Offset, watchUntil: math.MaxInt64}
}

// watched says that the message is noted before it runs.
func (p *partitions) watched(r event.Record) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return r.Offset < p.at[place(r)].watchUntil
}

// alone says that the message runs in no company.
func (p *partitions) alone(r event.Record) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return r.Offset < p.at[place(r)].aloneUntil
}

// suspect says that a process has died with this message, and perhaps with others behind it, in hand.
func (p *partitions) suspect(r event.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.at[place(r)]
	at.aloneUntil = r.Offset + p.together
	at.watchUntil = max(at.watchUntil, at.aloneUntil)
}

// ran says that a noted message has run: what was in hand at a death before this process lies in its company.
func (p *partitions) ran(r event.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.at[place(r)]; at.watchUntil == math.MaxInt64 {
		at.watchUntil = max(r.Offset+p.together, at.aloneUntil)
	}
}

// passed says that the message is decided about.
func (p *partitions) passed(r event.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.at[place(r)]
	at.next = max(at.next, r.Offset+1)
}
