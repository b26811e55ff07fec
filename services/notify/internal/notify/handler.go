package notify

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/telemetry"
)

// handle turns an event into at most one command. It runs in the transaction of the consume log and speaks to nobody:
// sending is the sender's work, because an HTTP call cannot be rolled back.
func handle(ctx context.Context, tx *gorm.DB, e event.Event) error {
	if e.Type != event.PaymentSucceeded && e.Type != event.OrderCanceled {
		return consumer.Ignored
	}
	o, err := e.Order()
	if err != nil {
		return consumer.BadData(err)
	}
	switch {
	case e.Type == event.PaymentSucceeded:
		return write(ctx, tx, e, kindPaid, "We have received your payment for order "+o.OrderNo+". Thank you.")
	case o.PreviousStatus == event.StatusPaid:
		return write(ctx, tx, e, kindCanceled, "Order "+o.OrderNo+" is cancelled. You will get your money back.")
	default: // nothing was paid, so there is nothing to tell
		return consumer.Ignored
	}
}

const insertCommand = `
INSERT INTO t_notification_command (command_id, event_id, order_no, kind, text, text_digest, trace_parent)
VALUES (@id, @event_id, @order_no, @kind, @text, sha256(convert_to(@text, 'UTF8')), nullif(@trace_parent, ''))
ON CONFLICT ON CONSTRAINT notification_once DO NOTHING`

func write(ctx context.Context, tx *gorm.DB, e event.Event, kind, text string) error {
	err := tx.Exec(insertCommand, map[string]any{
		"id": commandID(e.ID, kind), "event_id": e.ID, "order_no": e.AggregateID, "kind": kind, "text": text,
		"trace_parent": telemetry.TraceParent(ctx),
	}).Error
	if err != nil {
		return fmt.Errorf("writing the command: %w", err)
	}
	return nil
}

// commands is the name space of command ids. Changing it would give messages that were sent a new identity.
var commands = uuid.MustParse("0b8e6c57-3a0f-5c39-9d4e-8f3f4f6d2a90")

// commandID follows from the event, so a command whose row was lost and is written again has the key that the provider
// knows already.
func commandID(eventID, kind string) string {
	return uuid.NewSHA1(commands, []byte(kind+" "+eventID)).String()
}
