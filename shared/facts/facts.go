// Package facts is what services tell a reconciler, and nothing else: the source what must be true, each consumer group
// what it knows and has done. Both sides answer GET /ops/facts?after=&limit= in pages, so that no reconciler ever reads
// another service's database.
//
// The package does not own the comparison; that is the reconciler's.
package facts

import "time"

// MaxLimit and DefaultLimit bound a page.
const (
	DefaultLimit = 500
	MaxLimit     = 2000
)

// SourcePage is the source's answer: orders by ascending order number, greater than `after`. With `order_no` in the
// query it holds that order alone, or nothing.
type SourcePage struct {
	Orders []Order `json:"orders"`
	Next   string  `json:"next,omitempty"` // the next `after`; empty on the last page
}

// Order is one order as its owner has it now, with every event that it has ever appended.
type Order struct {
	OrderNo  string     `json:"order_no"`
	UserID   string     `json:"user_id"`
	Amount   int64      `json:"amount"` // minor units
	Currency string     `json:"currency"`
	Status   string     `json:"status"`
	Version  int64      `json:"version"`
	PaidAt   *time.Time `json:"paid_at,omitempty"`
	Digest   string     `json:"digest,omitempty"` // of its Contents; empty from a source that does not tell
	Events   []Sent     `json:"events"`           // by aggregate version
}

// Sent is one outbox row. Partition and Offset are where the broker said that it stored the event; nil until then.
type Sent struct {
	EventID   string    `json:"event_id"`
	EventType string    `json:"event_type"`
	Version   int64     `json:"version"`
	Hash      string    `json:"hash"`
	Status    string    `json:"status"` // of the outbox
	Topic     string    `json:"topic"`
	Partition *int32    `json:"partition,omitempty"`
	Offset    *int64    `json:"offset,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// GroupPage is a consumer group's answer: consume-log rows by ascending event id, greater than `after`. With
// `event_id` in the query (repeatable) it holds those rows alone, and no faults. A row is read before the effect that
// stands outside its database, so that an effect may look newer than its row but never older.
type GroupPage struct {
	Group string `json:"group"`
	Facts []Fact `json:"facts"`
	Next  string `json:"next,omitempty"`
	// Faults stand on the last page: what the service finds wrong in its own database, with one statement and so in one
	// snapshot. Here belongs what no event leads to: an effect without a consume-log row, a balance that is not the sum
	// of its entries.
	Faults []Fault `json:"faults,omitempty"`
}

// Fault is damage that a service finds in its own data.
type Fault struct {
	Ref     string `json:"ref"` // what is damaged, such as an entry's or an account's id
	OrderNo string `json:"order_no,omitempty"`
	EventID string `json:"event_id,omitempty"`
	Detail  string `json:"detail"` // for people; no personal data
}

// Fact is what a group knows of one event.
type Fact struct {
	EventID   string    `json:"event_id"`
	EventType string    `json:"event_type"`
	OrderNo   string    `json:"order_no"`
	Version   int64     `json:"version"`
	Hash      string    `json:"hash"`
	Status    string    `json:"status"`  // of the consume log
	Outcome   string    `json:"outcome"` // with SUCCESS: applied, superseded or ignored
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	UpdatedAt time.Time `json:"updated_at"`
	// Effect is read back from where the effect lives, not from the log: an applied event without its effect is damage.
	Effect *Effect `json:"effect,omitempty"`
}

// Effect is what an event did, in the service's own words. Unused fields stay empty.
type Effect struct {
	Kind    string `json:"kind"`              // for example CREDIT, PAID, DOCUMENT
	Ref     string `json:"ref"`               // the effect's own id
	UserID  string `json:"user_id,omitempty"` // whose it is, where that must be the order's user; empty from a service that does not tell
	Amount  int64  `json:"amount,omitempty"`  // in the effect's own unit; positive also for what takes back
	Version int64  `json:"version,omitempty"` // of the aggregate, where the effect is a copy of it
	Digest  string `json:"digest,omitempty"`  // of the copy's Contents; empty from a service that does not tell
	State   string `json:"state,omitempty"`
	Copies  int    `json:"copies,omitempty"` // how many times the effect is there; a right one has 1
}
