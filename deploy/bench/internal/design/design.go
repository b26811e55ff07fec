package design

import (
	"context"
	"time"

	"example.com/paycast/shared/event"
)

// Topic is where every design publishes.
const Topic = event.Topic

// Target is what one relay process works on.
type Target struct {
	DatabaseURL string
	Brokers     string
	Poll        time.Duration // ours only; 0 is its default
}

// Design is one way to bring a backlog to Kafka.
type Design struct {
	Name  string // in the JSON and on the command line
	Label string // for people
	// Serial says that it sends one message after the other, so that a slow broker is felt by each of them.
	Serial bool
	// Silent says that it sends nothing.
	Silent bool
	// Backlog names what Fill makes; designs with the same name work on the same.
	Backlog string
	// Fill makes the tables in an empty database, and in them the backlog.
	Fill func(ctx context.Context, databaseURL string, rows Rows) error
	// Append opens an application that commits single events, and that wakes the relay after each if it is told to and
	// the design knows how. Nil: the design takes no part in the latency measurement.
	Append func(ctx context.Context, databaseURL string, wake bool) (Appender, error)
	// Run relays until ctx ends.
	Run func(ctx context.Context, t Target) error
	// Done is a query: whether the table says that everything is sent.
	Done string
}

// Appender commits single events.
type Appender interface {
	Append(ctx context.Context, e event.Event) error
	Close()
}

// All are the designs, in the order of the report.
func All() []Design {
	return []Design{naive(), tuned(), ours(), chunks(), limit()}
}

// ByName finds one of All.
func ByName(name string) (Design, bool) {
	for _, d := range All() {
		if d.Name == name {
			return d, true
		}
	}
	return Design{}, false
}
