package reconcile

import (
	"fmt"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/facts"
)

const (
	paymentSucceeded = event.PaymentSucceeded
	orderCanceled    = event.OrderCanceled
)

// stateAfter is the order's state once an event has happened.
var stateAfter = map[string]string{
	event.OrderCreated:     event.StatusCreated,
	event.PaymentSucceeded: event.StatusPaid,
	event.OrderCanceled:    event.StatusCanceled,
	event.OrderClosed:      event.StatusClosed,
}

// follows lists the legal steps. The first event has no predecessor.
var follows = map[string][]string{
	"":                     {event.OrderCreated},
	event.OrderCreated:     {event.PaymentSucceeded, event.OrderCanceled, event.OrderClosed},
	event.PaymentSucceeded: {event.OrderCanceled},
}

// historyFault returns the first thing that is wrong with the order's own story: one damage, one finding. An order is
// paid exactly when it has one PaymentSucceeded event; versions run from 1 without gaps or repeats; the steps are legal
// and lead to the order's present state and version.
func historyFault(o facts.Order) (kind, detail string) {
	payments := 0
	for _, e := range o.Events {
		if e.EventType == event.PaymentSucceeded {
			payments++
		}
	}
	if paid := o.PaidAt != nil; payments > 1 || paid != (payments == 1) {
		return PaidMismatch, fmt.Sprintf("paid: %t, PaymentSucceeded events: %d", paid, payments)
	}
	previous := ""
	for i, e := range o.Events {
		if want := int64(i) + 1; e.Version != want {
			return History, fmt.Sprintf("event %d of the order has version %d", want, e.Version)
		}
		legal := false
		for _, next := range follows[previous] {
			legal = legal || next == e.EventType
		}
		if !legal {
			return History, fmt.Sprintf("%s v%d cannot come after %q", e.EventType, e.Version, previous)
		}
		previous = e.EventType
	}
	if o.Status != stateAfter[previous] || o.Version != int64(len(o.Events)) {
		return History, fmt.Sprintf("the order is %s v%d, its last event is %q v%d", o.Status, o.Version, previous, len(o.Events))
	}
	return "", ""
}
