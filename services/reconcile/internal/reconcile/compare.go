package reconcile

import (
	"fmt"
	"slices"
	"time"

	"example.com/paycast/shared/facts"
)

// Snapshot is everything that Compare looks at.
type Snapshot struct {
	Now    time.Time
	Late   time.Duration // how old an unfinished event may be
	Orders []facts.Order
	Groups []Group
}

// Group is what one consumer group says, and what Kafka says of it.
type Group struct {
	Name      string
	Committed map[int32]int64 // per partition the offset from which the group goes on; read before Facts
	Facts     []facts.Fact
	Faults    []facts.Fault
	Promise   string // see promiseOf; empty means that Compare finds it out from Facts
}

// Report is what Compare found.
type Report struct {
	Checked  Checked
	Findings []Finding
}

// Checked counts what was compared. The buckets of each group sum up to Events.
type Checked struct {
	Orders int                       `json:"orders"`
	Events int                       `json:"events"`
	Money  map[string]Money          `json:"money"`  // by currency
	Groups map[string]map[string]int `json:"groups"` // bucket → events
	Points map[string]Points         `json:"points"` // of the groups that credit
}

// Money is in minor units.
type Money struct {
	Paid   int64 `json:"paid"`   // by the orders' paid_at
	Events int64 `json:"events"` // by their PaymentSucceeded events
}

// Points sums up a ledger. Expected is what all paid orders ask for, so events in flight make a difference to it.
type Points struct {
	Credited int64 `json:"credited"`
	Reversed int64 `json:"reversed"`
	Expected int64 `json:"expected"`
}

// The buckets; Missing, Unclear and Dead are kinds of findings too.
const (
	applied    = "applied"
	superseded = "superseded"
	ignored    = "ignored"
	rejected   = "rejected"
	waiting    = "waiting"
	retrying   = "retrying"
	inFlight   = "in_flight"
)

var buckets = []string{applied, superseded, ignored, rejected, waiting, retrying, Dead, inFlight, Missing, Unclear}

// Compare is a pure function from what was read to what is wrong. It makes no allowance for a snapshot that moved while
// it was read: whatever it finds is looked at a second time by Confirm.
//
// FLOW 9/9: the circle closes; each event is accounted for, in each group, exactly once.
func Compare(s Snapshot) Report {
	c := comparison{Snapshot: s, report: Report{Checked: Checked{
		Orders: len(s.Orders), Money: map[string]Money{}, Groups: map[string]map[string]int{}, Points: map[string]Points{},
	}}}
	for _, o := range s.Orders {
		c.source(o)
	}
	for _, g := range s.Groups {
		c.group(g)
	}
	slices.SortFunc(c.report.Findings, byOrder)
	return c.report
}

type comparison struct {
	Snapshot
	report Report
}

func (c *comparison) find(kind, group, orderNo, eventID, format string, args ...any) {
	c.report.Findings = append(c.report.Findings, Finding{
		Kind: kind, Group: group, OrderNo: orderNo, EventID: eventID, Detail: fmt.Sprintf(format, args...), State: stateOpen,
	})
}

// source looks at an order and its outbox rows alone.
func (c *comparison) source(o facts.Order) {
	if kind, detail := historyFault(o); kind != "" {
		c.find(kind, "", o.OrderNo, "", "%s", detail)
	}
	m := c.report.Checked.Money[o.Currency]
	if o.PaidAt != nil {
		m.Paid += o.Amount
	}
	for _, e := range o.Events {
		if e.EventType == paymentSucceeded {
			m.Events += o.Amount
		}
		switch {
		case e.Status == "DEAD":
			c.find(OutboxDead, "", o.OrderNo, e.EventID, "%s v%d was given up by the relay", e.EventType, e.Version)
		case e.Offset == nil && c.overdue(e.CreatedAt):
			c.find(UnsentLate, "", o.OrderNo, e.EventID, "%s v%d is %s in the outbox since %s",
				e.EventType, e.Version, e.Status, clock(e.CreatedAt))
		}
	}
	c.report.Checked.Money[o.Currency] = m
	c.report.Checked.Events += len(o.Events)
}

// group puts each event of the source into one bucket of g and checks the effects of each order.
func (c *comparison) group(g Group) {
	log := make(map[string]*facts.Fact, len(g.Facts))
	for i := range g.Facts {
		log[g.Facts[i].EventID] = &g.Facts[i]
	}
	if g.Promise == "" {
		g.Promise = promiseOf(g.Facts)
	}
	counts := map[string]int{}
	for _, b := range buckets {
		counts[b] = 0
	}
	for _, o := range c.Orders {
		rows := make([]row, 0, len(o.Events))
		for _, e := range o.Events {
			r := row{event: e, fact: log[e.EventID]}
			r.bucket = c.bucket(g, o, r)
			counts[r.bucket]++
			rows = append(rows, r)
			delete(log, e.EventID)
		}
		c.effects(g, o, rows)
	}
	for id, f := range log {
		c.find(UnknownEvent, g.Name, f.OrderNo, id, "the log has %s v%d (%s), the source has no such event", f.EventType, f.Version, f.Status)
	}
	for _, f := range g.Faults {
		if f.EventID != "" && slices.ContainsFunc(c.report.Findings, func(seen Finding) bool {
			return seen.Group == g.Name && seen.EventID == f.EventID
		}) {
			continue // the same damage, seen from the service's side
		}
		c.find(SelfCheck, g.Name, f.OrderNo, f.EventID, "%s: %s", f.Ref, f.Detail)
	}
	c.report.Checked.Groups[g.Name] = counts
}

// row is one event of the source beside what a group knows of it; fact is nil when the group knows nothing.
type row struct {
	event  facts.Sent
	fact   *facts.Fact
	bucket string
}

// bucket decides what became of an event in a group, and reports what must not stay so.
func (c *comparison) bucket(g Group, o facts.Order, r row) string {
	e, f := r.event, r.fact
	find := func(kind, format string, args ...any) { c.find(kind, g.Name, o.OrderNo, e.EventID, format, args...) }
	if f == nil {
		switch {
		case e.Status == "DEAD": // reported by source, once and not per group
			return Dead
		case e.Partition == nil || e.Offset == nil:
			return inFlight
		case *e.Offset < g.Committed[*e.Partition]:
			find(Missing, "%s v%d at partition %d offset %d: the group has committed %d and has no log row",
				e.EventType, e.Version, *e.Partition, *e.Offset, g.Committed[*e.Partition])
			return Missing
		case c.overdue(e.CreatedAt):
			find(Late, "%s v%d is at partition %d offset %d since %s and not yet consumed",
				e.EventType, e.Version, *e.Partition, *e.Offset, clock(e.CreatedAt))
		}
		return inFlight
	}
	if f.Hash != e.Hash || f.EventType != e.EventType || f.OrderNo != o.OrderNo || f.Version != e.Version {
		find(EventDiffers, "the log has %s v%d of order %s, hash %.12s; the source %s v%d, hash %.12s",
			f.EventType, f.Version, f.OrderNo, f.Hash, e.EventType, e.Version, e.Hash)
	}
	unfinished := map[string]string{"WAITING": waiting, "RETRY": retrying, "PROCESSING": retrying}[f.Status]
	switch {
	case unfinished != "":
		if c.overdue(e.CreatedAt) {
			find(Late, "%s v%d is %s since %s", e.EventType, e.Version, f.Status, clock(e.CreatedAt))
		}
		return unfinished
	case f.Status == "REJECTED":
		return rejected
	case f.Status == "DEAD":
		find(Dead, "%s v%d is a dead letter of this group", e.EventType, e.Version)
		return Dead
	case f.Status == "SUCCESS" && (f.Outcome == applied || f.Outcome == superseded || f.Outcome == ignored):
		return f.Outcome
	}
	find(Unclear, "%s v%d has status %q with outcome %q", e.EventType, e.Version, f.Status, f.Outcome)
	return Unclear
}

func (c *comparison) overdue(since time.Time) bool { return c.Now.Sub(since) > c.Late }

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }
