package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/telemetry"
)

// lane tries again what the partitions left behind, until ctx ends. It claims one message for each free worker, so at
// shutdown nothing is claimed that has not begun.
func (c *consumer) lane(ctx context.Context) error {
	work, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()
	defer context.AfterFunc(ctx, func() {
		sleep(work, drain)
		cutOff()
	})()
	var running sync.WaitGroup
	free := make(chan struct{}, c.Workers)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case free <- struct{}{}:
			d, err := inbox.Claim(work, c.DB, c.Group, c.rule()) // broken off by the signal it may have been committed
			if d != nil {
				running.Go(func() {
					c.retry(ctx, work, *d)
					<-free
				})
				continue
			}
			<-free
			if err == nil {
				var took bool
				if took, err = c.takeOver(ctx, work, &running); took {
					continue
				}
			}
			if err != nil && ctx.Err() == nil {
				c.log.Warn("claiming from the retry lane", "group", c.Group, "error", scrub(err))
			}
			c.idle(ctx)
		}
	}
	running.Wait()
	return nil
}

// takeOver tries again what a dead process has left, one by one and alone: it may be what that process died of, and
// would take its company in the lane with it, again and again, until all of them had run out of attempts.
func (c *consumer) takeOver(ctx, work context.Context, running *sync.WaitGroup) (took bool, err error) {
	expired, err := inbox.Expired(ctx, c.DB, c.Group)
	if !expired || err != nil {
		return false, err
	}
	running.Wait()
	d, err := inbox.TakeOver(work, c.DB, c.Group, c.rule())
	if d == nil || err != nil {
		return false, err
	}
	c.metrics.expired.Inc()
	c.retry(ctx, work, *d)
	return true, nil
}

// idle waits until the next look, or until a message of the lane is done: that one may have woken others.
func (c *consumer) idle(ctx context.Context) {
	timer := time.NewTimer(c.RetryPoll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-c.due:
	}
}

func (c *consumer) nudge() {
	select {
	case c.due <- struct{}{}:
	default: // somebody has already asked for a look
	}
}

// retry runs the handler for a claimed message, with the same answers as in a partition.
func (c *consumer) retry(stop, work context.Context, d inbox.Delivery) {
	d = c.addressed(d)
	e, err := d.Decode()
	if err != nil {
		// It could be read when it was kept: a newer build did that, or somebody has changed it since. This one cannot say
		// what it means.
		t := inbox.Trouble{Class: inbox.ClassUndecodable, Code: "undecodable", Text: scrub(err)}
		if errors.Is(err, inbox.ErrAltered) {
			t.Code = "altered"
		}
		c.settle(work, d, inbox.Failure{Outcome: inbox.Dead, Trouble: t}, err)
		return
	}
	d.Event = e
	if d.Failed >= c.Attempts {
		d.Failed-- // the claim that we hold is no attempt
		c.settle(work, d, inbox.Failure{Outcome: inbox.Dead, Trouble: inbox.Trouble{
			Class: inbox.ClassCrash, Text: "the process ended in the last attempt"}}, errCrashed)
		return
	}
	ctx, span := c.span(work, e)
	defer span.End()
	out, err := c.decide(ctx, d)
	if err != nil {
		c.giveBack(stop, d, err)
		return
	}
	c.metrics.done(e.Type, out)
	span.SetAttributes(telemetry.Result.String(string(out)))
	c.log.InfoContext(ctx, "event handled by the retry lane", "event_id", e.ID, "event_type", e.Type, "order_no", e.AggregateID,
		"group", c.Group, "result", out, "failed_before", d.Failed)
	c.nudge()
}

var errCrashed = errors.New("the process ended in the last attempt")

// settle records a failure that needs no attempt.
func (c *consumer) settle(ctx context.Context, d inbox.Delivery, f inbox.Failure, why error) {
	out, err := c.record(ctx, d, f)
	if err != nil {
		c.giveBack(ctx, d, err)
		return
	}
	c.metrics.done(d.Event.Type, out)
	c.report(ctx, d, out, f, why)
}

// giveBack returns a message that was not decided about, uncounted. Where that fails too, its lease runs out.
func (c *consumer) giveBack(stop context.Context, d inbox.Delivery, why error) {
	after := min(c.backoff(d.Failed+1), maxPause)
	if stop.Err() != nil {
		after = 0 // another process may have it at once
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(stop), recordMargin)
	defer cancel()
	ctx = telemetry.WithTraceParent(ctx, d.Event.TraceParent)
	if !errors.Is(why, inbox.ErrFenced) {
		err := inbox.GiveBack(ctx, c.DB, d, after)
		if err == nil || !errors.Is(err, inbox.ErrFenced) {
			c.log.WarnContext(ctx, "a message of the retry lane was not decided about", "event_id", d.Event.ID, "order_no", d.Event.AggregateID,
				"group", c.Group, "error", scrub(why), "given_back", err == nil)
			return
		}
	}
	c.metrics.fenced.Inc()
	c.log.WarnContext(ctx, "a message of the retry lane was taken over meanwhile", "event_id", d.Event.ID, "order_no", d.Event.AggregateID, "group", c.Group)
}

// report logs a failed attempt, once.
func (c *consumer) report(ctx context.Context, d inbox.Delivery, out inbox.Outcome, f inbox.Failure, err error) {
	log := c.log.With("event_id", d.Event.ID, "event_type", d.Event.Type, "order_no", d.Event.AggregateID, "group", c.Group,
		"result", out, "class", f.Class, "code", f.Code, "reason", f.Text, "failed_before", d.Failed)
	var p panicked
	switch {
	case errors.As(err, &p):
		log.ErrorContext(ctx, "the handler panicked", "stack", string(p.stack))
	case out == inbox.Retry && f.Class == inbox.ClassCrash:
		log.ErrorContext(ctx, "the process ends with this message in hand; it leaves its partition for the retry lane")
	case out == inbox.Dead:
		log.ErrorContext(ctx, "the message is a dead letter")
	case out == inbox.Waiting:
		log.InfoContext(ctx, "the message waits")
	default:
		log.WarnContext(ctx, "the attempt failed")
	}
}
