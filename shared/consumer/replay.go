package consumer

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/replay"
)

// replays are the group's, with this consumer's handler, lane and lag.
func (c *consumer) replays(reg prometheus.Registerer) *replay.Replays {
	r := &replay.Replays{
		Group: c.Group, DB: c.DB, Lease: c.rule(), Keep: c.ReplayRetention, Log: c.log, ReachesPeople: c.ReachesPeople,
		Try: c.try, Lag: c.lag.Load, Nudge: c.nudge, Metrics: replay.NewMetrics(reg, c.Group),
	}
	if c.SourceURL != "" {
		r.Source = replay.Payment{Client: ops.Client{BaseURL: c.SourceURL, Token: c.SourceToken}}
	}
	return r
}

var errRehearsed = errors.New("a rehearsal ends here")

// try runs the handler for a delivery and rolls back.
func (c *consumer) try(ctx context.Context, d inbox.Delivery) (inbox.Outcome, inbox.Trouble, error) {
	h, ok := c.handler.(interface {
		rehearse(ctx context.Context, db *gorm.DB, d inbox.Delivery) (inbox.Outcome, error)
	})
	if !ok {
		return "", inbox.Trouble{}, replay.ErrNotRehearsable
	}
	ctx, cancel := context.WithTimeout(ctx, c.HandlerTimeout)
	defer cancel()
	ctx, d.Result = withDelivery(ctx, d)
	out, err := h.rehearse(ctx, c.DB, c.addressed(d))
	switch {
	case err == nil:
		return out, inbox.Trouble{}, nil
	case class(err) == classDown:
		return "", inbox.Trouble{}, err
	}
	return "", trouble(err), nil
}

// rehearse is attempt, as if the log did not know that the event is dead, and without a trace.
func (h inTransaction) rehearse(ctx context.Context, db *gorm.DB, d inbox.Delivery) (out inbox.Outcome, err error) {
	defer recoverPanic(&err)
	err = postgres.Transaction(ctx, db, func(tx *gorm.DB) error {
		if err := inbox.Forget(ctx, tx, d); err != nil {
			return err
		}
		out, err = inbox.Once(ctx, tx, d, func(tx *gorm.DB) (inbox.Outcome, error) { return outcome(h.fn(ctx, tx, d.Event)) })
		if err != nil {
			return err
		}
		return errRehearsed
	})
	if errors.Is(err, errRehearsed) {
		err = nil
	}
	return out, err
}

// replayOf is the replay that sent a record to the group's own topic once more; empty for all others.
func replayOf(group string, r event.Record) string {
	if r.Topic != event.RedeliveryTopic(group) {
		return ""
	}
	for _, h := range r.Headers {
		if h.Key == event.ReplayHeader {
			return string(h.Value[:min(len(h.Value), 64)])
		}
	}
	return ""
}
