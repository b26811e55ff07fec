package points

import (
	"context"

	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/event"
)

// Handle is what this service does for an event. tx also holds the consume log: what is written here is committed
// together with "this event is done", or not at all.
func Handle(ctx context.Context, tx *gorm.DB, e event.Event) error {
	switch e.Type {
	case event.PaymentSucceeded:
		return OnPaymentSucceeded(ctx, tx, e)
	case event.OrderCanceled:
		return OnOrderCanceled(ctx, tx, e)
	default:
		return consumer.Ignored
	}
}

// OnPaymentSucceeded credits the customer.
//
// FLOW 7/9
func OnPaymentSucceeded(_ context.Context, tx *gorm.DB, e event.Event) error {
	o, err := e.Order()
	if err != nil {
		return consumer.BadData(err)
	}
	n, err := pointsFor(o.Amount, o.Currency)
	if err != nil {
		return consumer.BadData(err)
	}
	return Credit(tx, e.ID, o, n)
}
