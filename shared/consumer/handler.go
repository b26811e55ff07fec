package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/postgres"
)

// Handler is a service's function with the kind of effect that it has: InTransaction or Outside.
type Handler interface {
	// attempt runs the function once and commits the log with its success. On an error nothing is committed.
	attempt(ctx context.Context, db *gorm.DB, d inbox.Delivery) (inbox.Outcome, error)
}

// InTransaction is for an effect in the service's own database. The function gets the transaction that holds the log:
// either both are committed or neither. It runs again, from the start and with fresh reads, after a deadlock or a
// serialization failure, so it must do nothing outside tx, and above all talk to nobody over the network.
func InTransaction(fn func(ctx context.Context, tx *gorm.DB, e event.Event) error) Handler {
	return inTransaction{func(ctx context.Context, tx *gorm.DB, e event.Event) error {
		return fn(context.WithValue(ctx, insideKey{}, true), tx, e) // Healed looks
	}}
}

// insideKey marks the context of a handler that runs inside a transaction.
type insideKey struct{}

type inTransaction struct {
	fn func(ctx context.Context, tx *gorm.DB, e event.Event) error
}

func (h inTransaction) attempt(ctx context.Context, db *gorm.DB, d inbox.Delivery) (out inbox.Outcome, err error) {
	defer recoverPanic(&err)
	return once(ctx, db, d, func(tx *gorm.DB) (inbox.Outcome, error) { return outcome(h.fn(ctx, tx, d.Event)) })
}

// once is inbox.Once in a transaction of its own.
func once(ctx context.Context, db *gorm.DB, d inbox.Delivery, fn func(tx *gorm.DB) (inbox.Outcome, error)) (out inbox.Outcome, err error) {
	err = transaction(ctx, db, func(tx *gorm.DB) error {
		out, err = inbox.Once(ctx, tx, d, fn)
		return err
	})
	return out, err
}

// transaction is postgres.Transaction for a handler. One that could not even be opened, such as for want of a
// connection in time, is nobody's failure.
func transaction(ctx context.Context, db *gorm.DB, fn func(tx *gorm.DB) error) error {
	open := false
	err := postgres.Transaction(ctx, db, func(tx *gorm.DB) error {
		open = true
		return fn(tx)
	})
	if !open {
		return Down(err)
	}
	return err
}

// OutsideHandler is a Handler; see Outside.
type OutsideHandler struct {
	write  func(ctx context.Context, e event.Event) error
	record func(ctx context.Context, tx *gorm.DB, e event.Event) error
}

// Outside is for an effect elsewhere, such as a search index. The function may run more than once for one event, also
// at the same time, so what it writes must be versioned and repeatable: an older or equal version that is there already
// is success or Superseded. The log is written after it; before it, a crash would lose the effect.
func Outside(write func(ctx context.Context, e event.Event) error) OutsideHandler {
	return OutsideHandler{write: write}
}

// Then adds a function that records, in the transaction of the log, what has been written: the last applied version.
// It is called for applied events only.
func (h OutsideHandler) Then(record func(ctx context.Context, tx *gorm.DB, e event.Event) error) OutsideHandler {
	h.record = record
	return h
}

// errWriteFirst stops Once from recording success for what has not been written.
var errWriteFirst = errors.New("not written yet")

func (h OutsideHandler) attempt(ctx context.Context, db *gorm.DB, d inbox.Delivery) (out inbox.Outcome, err error) {
	defer recoverPanic(&err)
	// The log is asked before anything is written: a conflict, or a version whose turn has not come, must not be seen
	// outside. Looking before acting is safe here only because the write is versioned.
	clear, err := inbox.Clear(ctx, db, d)
	if err != nil {
		return "", Down(err)
	}
	if !clear {
		out, err := once(ctx, db, d, func(*gorm.DB) (inbox.Outcome, error) { return "", errWriteFirst })
		if !errors.Is(err, errWriteFirst) {
			return out, err
		}
	}
	written, err := outcome(h.write(ctx, d.Event))
	if err != nil {
		return "", err
	}
	return once(ctx, db, d, func(tx *gorm.DB) (inbox.Outcome, error) {
		if written == inbox.Applied && h.record != nil {
			return written, h.record(ctx, tx, d.Event)
		}
		return written, nil
	})
}

// recoverPanic makes a panic an attempt like any other failure. GORM has rolled the transaction back by then.
func recoverPanic(err *error) {
	if v := recover(); v != nil {
		*err = panicked{value: v, stack: debug.Stack()}
	}
}

// decide runs the handler and commits what becomes of the delivery. An error means that nothing was recorded and that
// the delivery must come again.
func (c *consumer) decide(ctx context.Context, d inbox.Delivery) (inbox.Outcome, error) {
	attempt, cancel := context.WithTimeout(ctx, c.HandlerTimeout)
	defer cancel()
	attempt, d.Result = withDelivery(attempt, d)
	out, err := c.handler.attempt(attempt, c.DB, d)
	switch {
	case err == nil:
		if out == inbox.Applied || out == inbox.Superseded {
			c.breaker.succeeded()
		}
		return out, nil
	case ctx.Err() != nil: // cut off by shutdown, which is nobody's failure
		return "", ctx.Err()
	case errors.Is(err, inbox.ErrFenced), class(err) == classDown:
		return "", err
	}
	f := c.judge(d, err)
	if (f.Class == inbox.ClassTransient || f.Class == inbox.ClassPanic) && !c.breaker.failed(d.Event.AggregateID) {
		return "", fmt.Errorf("%w: %s", errManyFailures, f.Text)
	}
	out, recordErr := c.record(ctx, d, f)
	if recordErr != nil {
		return "", fmt.Errorf("recording a failed attempt: %w", recordErr)
	}
	c.report(ctx, d, out, f, err)
	return out, nil
}

// judge decides what a failed attempt means for the message.
func (c *consumer) judge(d inbox.Delivery, err error) inbox.Failure {
	f := inbox.Failure{Outcome: inbox.Retry, After: c.backoff(d.Failed + 1), Trouble: trouble(err)}
	switch f.Class {
	case inbox.ClassBadData:
		f.Outcome = inbox.Dead
	case inbox.ClassRefused:
		f.Outcome = inbox.Refused
	case inbox.ClassWaiting:
		f.Outcome = inbox.Waiting
		// The longer it has waited, the longer it waits.
		f.After = min(c.MaxBackoff, c.backoff(1)+d.Waited/2)
		if d.Waited > c.MaxWait {
			f.Outcome = inbox.Dead
		}
	default:
		// Whoever replays wants to know at once that a message is still bad.
		if d.ReplayID != "" || d.Failed+1 >= c.Attempts {
			f.Outcome = inbox.Dead
		}
	}
	return f
}

func (c *consumer) record(ctx context.Context, d inbox.Delivery, f inbox.Failure) (out inbox.Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, recordMargin)
	defer cancel()
	err = postgres.Transaction(ctx, c.DB, func(tx *gorm.DB) error {
		out, err = inbox.Fail(ctx, tx, d, f)
		return err
	})
	return out, err
}
