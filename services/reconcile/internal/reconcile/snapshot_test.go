package reconcile

import (
	"fmt"
	"time"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/facts"
)

// now is the clock of every snapshot that a test makes; all its events are young against late.
var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

const late = 5 * time.Minute

// newOrder is an order with the given history, each event stored by the broker at offset 10·number + version of one
// partition.
func newOrder(number int, amount int64, history ...string) facts.Order {
	o := facts.Order{
		OrderNo: fmt.Sprintf("order-%04d", number), UserID: "user-1", Amount: amount, Currency: "CNY",
		Version: int64(len(history)),
	}
	for i, eventType := range history {
		version, partition := int64(i+1), int32(number%event.Partitions)
		offset := int64(number)*10 + version
		o.Events = append(o.Events, facts.Sent{
			EventID: fmt.Sprintf("%04d-v%d", number, version), EventType: eventType, Version: version,
			Hash: fmt.Sprintf("hash-%04d-v%d", number, version), Status: "SENT", Topic: event.Topic,
			Partition: &partition, Offset: &offset, CreatedAt: now.Add(-time.Minute),
		})
		o.Status = stateAfter[eventType]
		if eventType == event.PaymentSucceeded {
			at := now.Add(-time.Minute)
			o.PaidAt = &at
		}
	}
	o.Digest = fmt.Sprintf("digest-%04d-v%d", number, o.Version)
	return o
}

// agreeing is a snapshot in which three groups have applied everything: points credits, notify sends, search copies.
func agreeing(orders ...facts.Order) Snapshot {
	s := Snapshot{Now: now, Late: late, Orders: orders}
	for _, name := range []string{"notify", "points", "search"} {
		g := Group{Name: name, Committed: map[int32]int64{}}
		for p := range int32(event.Partitions) {
			g.Committed[p] = 1 << 40
		}
		for _, o := range orders {
			for _, e := range o.Events {
				g.Facts = append(g.Facts, appliedFact(name, o, e))
			}
		}
		s.Groups = append(s.Groups, g)
	}
	return s
}

// appliedFact is what the group's log holds once it has done its work.
func appliedFact(group string, o facts.Order, e facts.Sent) facts.Fact {
	f := facts.Fact{
		EventID: e.EventID, EventType: e.EventType, OrderNo: o.OrderNo, Version: e.Version, Hash: e.Hash,
		Status: "SUCCESS", Outcome: ignored, UpdatedAt: now.Add(-time.Minute),
	}
	if e.Partition != nil {
		f.Partition, f.Offset = *e.Partition, *e.Offset
	}
	paidCancel := e.EventType == event.OrderCanceled && o.PaidAt != nil
	effect := facts.Effect{Ref: group + "-" + e.EventID, Copies: 1}
	switch {
	case group == "search":
		effect.Kind, effect.Version, effect.State, effect.Digest = document, o.Version, o.Status, o.Digest
	case group == "points" && e.EventType == event.PaymentSucceeded:
		effect.Kind, effect.UserID, effect.Amount = credit, o.UserID, o.Amount/100
	case group == "points" && paidCancel:
		effect.Kind, effect.UserID, effect.Amount = reversal, o.UserID, o.Amount/100
	case group == "notify" && e.EventType == event.PaymentSucceeded:
		effect.Kind, effect.State = paid, "SENT"
	case group == "notify" && paidCancel:
		effect.Kind, effect.State = canceled, "SENT"
	default:
		return f
	}
	f.Outcome, f.Effect = applied, &effect
	return f
}

// find, fact and lose reach what a test wants to damage.
func (s *Snapshot) find(group string) *Group {
	for i := range s.Groups {
		if s.Groups[i].Name == group {
			return &s.Groups[i]
		}
	}
	panic("no group " + group)
}

func (g *Group) fact(eventID string) *facts.Fact {
	for i := range g.Facts {
		if g.Facts[i].EventID == eventID {
			return &g.Facts[i]
		}
	}
	panic("no fact of " + eventID)
}

func (g *Group) lose(eventID string) {
	kept := g.Facts[:0]
	for _, f := range g.Facts {
		if f.EventID != eventID {
			kept = append(kept, f)
		}
	}
	g.Facts = kept
}

// sameFinding compares everything but the words.
func sameFinding(a, b Finding) bool {
	return a.Kind == b.Kind && a.Group == b.Group && a.OrderNo == b.OrderNo && a.EventID == b.EventID
}
