package consumertest

import (
	"encoding/json"
	"time"

	"example.com/paycast/shared/event"
)

var someTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Order is an order of 12.50 euros as the payment service would describe it once it is paid.
func Order(orderNo, userID string) event.Order {
	paidAt := someTime
	return event.Order{
		OrderNo: orderNo, UserID: userID, Title: "a test", Amount: 1250, Currency: "EUR", Status: event.StatusPaid, Version: 2,
		PreviousStatus: event.StatusCreated, CreatedAt: someTime, OccurredAt: someTime, TradeNo: "trade-" + orderNo, PaidAt: &paidAt,
	}
}

// Event is the fact that o has come to be, of the given type.
func Event(eventType string, o event.Order) event.Event {
	payload, err := json.Marshal(o)
	if err != nil {
		panic(err) // an order always encodes
	}
	return event.Event{
		ID: event.NewID(eventType, o.OrderNo, o.TradeNo), Type: eventType, Version: 1, Source: "/payment",
		AggregateType: event.AggregateOrder, AggregateID: o.OrderNo, AggregateVersion: o.Version, Time: someTime, Payload: payload,
	}
}

// Paid is the order's payment.
func Paid(orderNo, userID string) event.Event {
	return Event(event.PaymentSucceeded, Order(orderNo, userID))
}

// Canceled is the cancellation of the order after its payment.
func Canceled(orderNo, userID string) event.Event {
	o := Order(orderNo, userID)
	o.Status, o.PreviousStatus, o.Version = event.StatusCanceled, event.StatusPaid, 3
	return Event(event.OrderCanceled, o)
}

// Record is the event as the relay publishes it.
func Record(e event.Event) event.Record {
	return event.Record{Key: []byte(e.AggregateID), Value: e.Payload, Headers: e.Headers()}
}
