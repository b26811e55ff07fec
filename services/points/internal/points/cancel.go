package points

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/event"
)

// kindReversal is the kind of the entry that takes a credit back.
const kindReversal = "REVERSAL"

// A cancellation waits for the versions before it: one of them is the payment whose points it takes back. Other events
// need nothing that came before.
var gaps = consumer.Gaps{event.OrderCanceled: consumer.Awaited}

var errNotCredited = errors.New("the order has not been credited yet")

// OnOrderCanceled takes the points of a paid order back. The cancellation of an order that was never paid has none to
// take.
func OnOrderCanceled(ctx context.Context, tx *gorm.DB, e event.Event) error {
	o, err := e.Order()
	if err != nil {
		return consumer.BadData(err)
	}
	if o.PaidAt == nil {
		return consumer.Ignored
	}
	err = Reverse(tx, e.ID, o)
	if !errors.Is(err, errNotCredited) {
		return err
	}
	given, lookErr := consumer.GivenUp(ctx, tx, e.AggregateID, event.PaymentSucceeded)
	switch {
	case lookErr != nil:
		return lookErr
	case given: // the points will never be there
		return consumer.Ignored
	}
	// Its payment has come and could not be handled, but may be yet. Reversing nothing now would leave the points there for
	// ever.
	return consumer.Waiting(err)
}

// Reverse takes back exactly what the order was credited, whatever its event says now.
func Reverse(tx *gorm.DB, eventID string, o event.Order) error {
	var credited entry
	found := tx.Where("order_no = ? AND kind = ?", o.OrderNo, kindCredit).Limit(1).Find(&credited)
	switch {
	case found.Error != nil:
		return fmt.Errorf("looking for the order's credit: %w", found.Error)
	case found.RowsAffected == 0:
		return errNotCredited
	}
	return post(tx, entry{
		UserID: credited.UserID, OrderNo: o.OrderNo, Kind: kindReversal, Points: -credited.Points, EventID: eventID,
	})
}
