package consumertest

import (
	"encoding/json"
	"time"

	"example.com/paycast/shared/event"
)

// someTime is one at which events come: what is as old as Kafka's retention is looked for in the archive.
var someTime = time.Now().UTC().Truncate(time.Millisecond)

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
	return after(event.OrderCanceled, orderNo, userID)
}

func after(eventType, orderNo, userID string) event.Event {
	o := Order(orderNo, userID)
	o.Status, o.PreviousStatus, o.Version = event.StatusCanceled, event.StatusPaid, 3
	return Event(eventType, o)
}

// Record is the event as the relay publishes it.
func Record(e event.Event) event.Record {
	return event.Record{Key: []byte(e.AggregateID), Value: e.Payload, Headers: e.Headers()}
}

// causeOf is the event of o that the service's effects are counted for.
func (s Service) causeOf(o event.Order) event.Event {
	if s.Event == "" {
		return Event(event.PaymentSucceeded, o)
	}
	return Event(s.Event, o)
}

func (s Service) cause(orderNo, userID string) event.Event {
	return s.causeOf(Order(orderNo, userID))
}

func (s Service) causes(orders []string) []event.Event {
	events := make([]event.Event, len(orders))
	for i, orderNo := range orders {
		events[i] = s.cause(orderNo, "user-"+orderNo)
	}
	return events
}

// later is the version after the cause's, of one of ann's orders, and has no effect where it is not the reversal of one.
func (s Service) later(orderNo string) event.Event {
	if s.Event == event.OrderCanceled {
		return after(event.OrderClosed, orderNo, "ann") // another cancellation would be another cause
	}
	return Canceled(orderNo, "ann")
}
