package event

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The events that exist. Consumers park what is not named here.
const (
	OrderCreated     = "OrderCreated"
	PaymentSucceeded = "PaymentSucceeded"
	OrderCanceled    = "OrderCanceled"
	OrderClosed      = "OrderClosed"
)

// AggregateOrder is the aggregate type of every event in the catalogue.
const AggregateOrder = "Order"

// CurrentVersion is the payload version that producers write and the newest that consumers understand.
const CurrentVersion = 1

// Topic carries all order events. Partitions is fixed: raising it would move keys to other partitions.
const (
	Topic      = "order-events"
	Partitions = 12
)

// RedeliveryTopic carries events that are sent again to one consumer group, so that no other group sees them.
func RedeliveryTopic(group string) string { return Topic + ".redeliver." + group }

// known maps a type to the newest payload version that this build understands.
var known = map[string]int{
	OrderCreated:     CurrentVersion,
	PaymentSucceeded: CurrentVersion,
	OrderCanceled:    CurrentVersion,
	OrderClosed:      CurrentVersion,
}

// Types are the names of all events, sorted.
func Types() []string { return slices.Sorted(maps.Keys(known)) }

// Catalogue gives each type and the newest payload version that this build understands.
func Catalogue() map[string]int { return maps.Clone(known) }

// The states of an order. See docs/architecture.md for the legal steps.
const (
	StatusCreated  = "CREATED"
	StatusPaid     = "PAID"
	StatusCanceled = "CANCELED"
	StatusClosed   = "CLOSED"
)

// Order is the payload of every event in the catalogue: the whole order as of the event's aggregate version, so that
// a projection can be built from any single event. It holds no phone number and no secret. Amount is in minor units of
// Currency (ISO 4217).
type Order struct {
	OrderNo        string     `json:"order_no"`
	UserID         string     `json:"user_id"`
	Title          string     `json:"title"`
	Amount         int64      `json:"amount"`
	Currency       string     `json:"currency"`
	Status         string     `json:"status"`
	Version        int64      `json:"version"`
	PreviousStatus string     `json:"previous_status"`
	CreatedAt      time.Time  `json:"created_at"`
	OccurredAt     time.Time  `json:"occurred_at"`
	TradeNo        string     `json:"trade_no,omitempty"`
	PaidAt         *time.Time `json:"paid_at,omitempty"`
}

// Order decodes the payload. Unknown fields are accepted, as later producers may add some; a missing or contradictory
// required field is an error, because a consumer would act on a zero value.
func (e Event) Order() (Order, error) {
	var o Order
	if err := json.Unmarshal(e.Payload, &o); err != nil {
		// encoding/json errors can quote the payload; the type says enough.
		return Order{}, fmt.Errorf("payload of %s v%d is not an order (%T)", e.Type, e.Version, err)
	}
	switch {
	case o.OrderNo != e.AggregateID:
		return Order{}, fmt.Errorf("payload of %s names another order than its key", e.Type)
	case o.Version != e.AggregateVersion:
		return Order{}, fmt.Errorf("payload of %s has version %d, its header %d", e.Type, o.Version, e.AggregateVersion)
	case o.UserID == "" || o.Currency == "" || o.Status == "" || o.Amount <= 0:
		return Order{}, fmt.Errorf("payload of %s lacks user_id, currency, status or a positive amount", e.Type)
	}
	return o, nil
}
