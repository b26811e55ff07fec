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
	if !c.lines.watched(d.Record) {
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
	c.lines.ran(d.Record)
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
	case c.lines.alone(first.Record):
		return false, nil
	case !c.lines.watched(first.Record):
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
		c.lines.suspect(d.Record)
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

// lines are the partitions that this process reads.
type lines struct {
	together int64 // so many messages of a partition may be in hand at a time
	mu       sync.Mutex
	at       map[partition]*line
}

type partition struct {
	topic  string
	number int32
}

func place(r event.Record) partition { return partition{r.Topic, r.Partition} }

// line is how far a partition has come in this process.
type line struct {
	next       int64 // the offset after the last message that was decided about
	watchUntil int64 // whatever is in hand below it is noted
	aloneUntil int64 // a process has died in one of the messages below it
}

// enter is for the first of the messages that come next. Where the partition begins, or goes on behind a gap in which it
// was somebody else's, nothing is known of them.
func (l *lines) enter(r event.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, known := l.at[place(r)]; known && r.Offset <= at.next {
		return
	}
	if l.at == nil {
		l.at = map[partition]*line{}
	}
	l.at[place(r)] = &line{next: r.Offset, watchUntil: math.MaxInt64}
}

func (l *lines) watched(r event.Record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return r.Offset < l.at[place(r)].watchUntil
}

func (l *lines) alone(r event.Record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return r.Offset < l.at[place(r)].aloneUntil
}

// suspect says that a process has died with this message, and perhaps with others behind it, in hand.
func (l *lines) suspect(r event.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.at[place(r)]
	at.aloneUntil = r.Offset + l.together
	at.watchUntil = max(at.watchUntil, at.aloneUntil)
}

// ran says that a noted message has run: what was in hand at a death before this process lies in its company.
func (l *lines) ran(r event.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.at[place(r)]; at.watchUntil == math.MaxInt64 {
		at.watchUntil = max(r.Offset+l.together, at.aloneUntil)
	}
}

// passed says that the message is decided about.
func (l *lines) passed(r event.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.at[place(r)]
	at.next = max(at.next, r.Offset+1)
}
