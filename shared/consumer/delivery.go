package consumer

import (
	"context"
	"errors"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
)

// Mode is the road on which an event came.
type Mode string

// The roads. An event has the same meaning on each.
const (
	FromTopic      Mode = "topic"
	FromRedelivery Mode = "redelivery" // sent again to this group alone
	FromLane       Mode = "lane"       // tried again, or given back by a replay
)

// Delivery is what a handler may know of how its event came. Its effect must not depend on it.
type Delivery struct {
	Mode      Mode
	ReplayID  string        // of the replay or reapply that brought it; empty otherwise
	Attempt   int           // from 1
	Waited    time.Duration // since the event came first
	FirstSeen time.Time     // when that was, by this process's clock
}

type deliveryKey struct{}

type delivered struct {
	Delivery
	group  string
	result *string
}

// DeliveryOf tells a handler about its delivery; zero outside a handler.
func DeliveryOf(ctx context.Context) Delivery {
	d, _ := ctx.Value(deliveryKey{}).(*delivered)
	if d == nil {
		return Delivery{}
	}
	return d.Delivery
}

// Made keeps a reference to what the handler has made in the consume log, at most 128 bytes: for people who look for it.
func Made(ctx context.Context, ref string) {
	if d, _ := ctx.Value(deliveryKey{}).(*delivered); d != nil {
		*d.result = ref[:min(len(ref), 128)]
	}
}

func withDelivery(ctx context.Context, d inbox.Delivery) (context.Context, *string) {
	mode := FromTopic
	switch {
	case d.Claimed:
		mode = FromLane
	case d.Record.Topic == event.RedeliveryTopic(d.Group):
		mode = FromRedelivery
	}
	result := new(string)
	return context.WithValue(ctx, deliveryKey{}, &delivered{Delivery: Delivery{
		Mode: mode, ReplayID: d.ReplayID, Attempt: d.Failed + 1, Waited: d.Waited, FirstSeen: time.Now().Add(-d.Waited).UTC(),
	}, group: d.Group, result: result}), result
}

// GivenUp tells a handler whether its group has given up an event of this type and aggregate: refused by the business, or
// discarded or erased by an operator. What that event would have done will never be there, and nothing should wait for it.
func GivenUp(ctx context.Context, tx *gorm.DB, aggregate, eventType string) (bool, error) {
	d, _ := ctx.Value(deliveryKey{}).(*delivered)
	if d == nil {
		return false, errors.New("consumer: GivenUp was asked outside a handler of one event")
	}
	return inbox.GivenUp(ctx, tx, d.group, aggregate, eventType)
}
