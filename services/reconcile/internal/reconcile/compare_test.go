package reconcile

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/facts"
)

var (
	created = event.OrderCreated
	payment = event.PaymentSucceeded
	cancel  = event.OrderCanceled
	closed  = event.OrderClosed
)

// threeOrders is a paid one (1), a paid and cancelled one (2) and a closed one (3).
func threeOrders() Snapshot {
	return agreeing(newOrder(1, 12_345, created, payment), newOrder(2, 99, created, payment, cancel), newOrder(3, 500, created, closed))
}

func TestNothingIsReportedWhereAllAgree(t *testing.T) {
	t.Parallel()
	r := Compare(threeOrders())
	require.Empty(t, r.Findings)
	require.Equal(t, 3, r.Checked.Orders)
	require.Equal(t, 7, r.Checked.Events)
	require.Equal(t, map[string]Money{"CNY": {Paid: 12_444, Events: 12_444}}, r.Checked.Money)
	require.Equal(t, map[string]Points{"points": {Credited: 123, Reversed: 0, Expected: 123}}, r.Checked.Points)
	require.Equal(t, 7, r.Checked.Groups["search"][applied])
	require.Equal(t, 3, r.Checked.Groups["points"][applied])
	require.Equal(t, 4, r.Checked.Groups["points"][ignored])
}

// damage is one thing that goes wrong with order 1 or 2 of threeOrders, and the finding that must name it.
type damage struct {
	name string
	do   func(s *Snapshot)
	want []Finding
}

const (
	order1, order2 = "order-0001", "order-0002"
	paid1          = "0001-v2" // the payment of order 1
	cancel2        = "0002-v3" // the cancellation of order 2, which was paid
)

func one(kind, group, orderNo, eventID string) []Finding {
	return []Finding{{Kind: kind, Group: group, OrderNo: orderNo, EventID: eventID}}
}

func longAgo() time.Time { return now.Add(-time.Hour) }

var damages = []damage{
	{"an order is paid without an event", func(s *Snapshot) {
		o := &s.Orders[2]
		at := now
		o.PaidAt = &at
	}, one(PaidMismatch, "", "order-0003", "")},
	{"an event says paid and the order does not", func(s *Snapshot) { s.Orders[0].PaidAt = nil }, one(PaidMismatch, "", order1, "")},
	{"the order's state was set back", func(s *Snapshot) { s.Orders[0].Status = event.StatusCreated }, one(History, "", order1, "")},
	{"the order's version was raised without an event", func(s *Snapshot) { s.Orders[0].Version = 3 }, one(History, "", order1, "")},
	{"a version is missing in the outbox", func(s *Snapshot) {
		o := &s.Orders[1]
		o.Events = slices.Delete(o.Events, 0, 1)
		for _, g := range []string{"notify", "points", "search"} {
			s.find(g).lose("0002-v1")
		}
	}, one(History, "", order2, "")},
	{"an illegal step", func(s *Snapshot) {
		s.Orders[2].Events[0].EventType = closed
		for _, g := range []string{"notify", "points", "search"} {
			s.find(g).fact("0003-v1").EventType = closed
		}
	}, one(History, "", "order-0003", "")},
	{"the relay gave an event up", func(s *Snapshot) { s.Orders[0].Events[1].Status = "DEAD" }, one(OutboxDead, "", order1, paid1)},
	{"an event has not left the outbox for an hour", func(s *Snapshot) {
		unsend(&s.Orders[0].Events[1])
		s.Orders[0].Events[1].CreatedAt = longAgo()
	}, one(UnsentLate, "", order1, paid1)},
	{"an acked event has no log row", func(s *Snapshot) { s.find("points").lose(paid1) }, one(Missing, "points", order1, paid1)},
	{"an event waits in Kafka for an hour", func(s *Snapshot) {
		s.find("points").lose(paid1)
		s.find("points").Committed[1] = 12 // its offset: it is the next to be read
		s.Orders[0].Events[1].CreatedAt = longAgo()
	}, one(Late, "points", order1, paid1)},
	{"an event is retried for an hour", func(s *Snapshot) {
		unfinish(s, "points", paid1, "RETRY")
		s.Orders[0].Events[1].CreatedAt = longAgo()
	}, one(Late, "points", order1, paid1)},
	{"an event is claimed for an hour", func(s *Snapshot) {
		unfinish(s, "points", paid1, "PROCESSING")
		s.Orders[0].Events[1].CreatedAt = longAgo()
	}, one(Late, "points", order1, paid1)},
	{"an event is a dead letter", func(s *Snapshot) { unfinish(s, "points", paid1, "DEAD") }, one(Dead, "points", order1, paid1)},
	{"the log has an outcome that nobody knows", func(s *Snapshot) {
		f := s.find("points").fact("0001-v1")
		f.Outcome = "healed"
	}, one(Unclear, "points", order1, "0001-v1")},
	{"the log has another hash", func(s *Snapshot) { s.find("search").fact(paid1).Hash = "other" }, one(EventDiffers, "search", order1, paid1)},
	{"the log names another order", func(s *Snapshot) { s.find("points").fact(paid1).OrderNo = order2 }, one(EventDiffers, "points", order1, paid1)},
	{"the log has an event that the source never had", func(s *Snapshot) {
		g := s.find("points")
		f := *g.fact(paid1)
		f.EventID = "forged"
		g.Facts = append(g.Facts, f)
	}, one(UnknownEvent, "points", order1, "forged")},
	{"the newest event is superseded by nothing", func(s *Snapshot) {
		g := s.find("search")
		for i := range g.Facts {
			if g.Facts[i].OrderNo == order1 {
				g.Facts[i].Effect.Version, g.Facts[i].Effect.State = 1, event.StatusCreated
			}
		}
		g.fact(paid1).Outcome = superseded
	}, one(SupersededWrong, "search", order1, paid1)},
	{"the service finds its own data wrong", func(s *Snapshot) {
		s.find("points").Faults = []facts.Fault{{Ref: "user-1", OrderNo: order1, Detail: "balance 7, entries 6"}}
	}, one(SelfCheck, "points", order1, "")},
	{"a log row is gone, and the service misses it too", func(s *Snapshot) {
		g := s.find("points")
		g.lose(paid1)
		g.Faults = []facts.Fault{{Ref: "entry-1", OrderNo: order1, EventID: paid1, Detail: "no log row"}}
	}, one(Missing, "points", order1, paid1)},
	{"the points of a payment are gone", func(s *Snapshot) { s.find("points").fact(paid1).Effect = nil }, one(EffectMissing, "points", order1, paid1)},
	{"a payment was merely ignored by who credits", func(s *Snapshot) {
		f := s.find("points").fact(paid1)
		f.Outcome, f.Effect = ignored, nil
	}, one(EffectMissing, "points", order1, paid1)},
	{"a paid cancellation took nothing back", func(s *Snapshot) {
		f := s.find("points").fact(cancel2)
		f.Outcome, f.Effect = ignored, nil
	}, one(EffectMissing, "points", order2, cancel2)},
	{"a paid cancellation sent no notice", func(s *Snapshot) {
		f := s.find("notify").fact(cancel2)
		f.Outcome, f.Effect = ignored, nil
	}, one(EffectMissing, "notify", order2, cancel2)},
	{"points were credited twice", func(s *Snapshot) { s.find("points").fact(paid1).Effect.Copies = 2 }, one(EffectRepeated, "points", order1, paid1)},
	{"a dead letter has credited", func(s *Snapshot) {
		s.find("points").fact(paid1).Status = "REJECTED"
	}, one(EffectUnexpected, "points", order1, paid1)},
	{"an order's creation has credited", func(s *Snapshot) {
		f := s.find("points").fact("0001-v1")
		f.Outcome, f.Effect = applied, &facts.Effect{Kind: credit, Amount: 123, Copies: 1}
	}, one(EffectUnexpected, "points", order1, "0001-v1")},
	{"the wrong number of points was credited", func(s *Snapshot) { s.find("points").fact(paid1).Effect.Amount = 124 }, one(EffectDiffers, "points", order1, paid1)},
	{"more was taken back than was credited", func(s *Snapshot) { s.find("points").fact(cancel2).Effect.Amount = 1 }, one(EffectDiffers, "points", order2, cancel2)},
	{"another user was credited", func(s *Snapshot) { s.find("points").fact(paid1).Effect.UserID = "user-2" }, one(EffectDiffers, "points", order1, paid1)},
	{"another user was credited, and it was taken back from there", func(s *Snapshot) {
		s.find("points").fact("0002-v2").Effect.UserID = "user-2"
		s.find("points").fact(cancel2).Effect.UserID = "user-2"
	}, one(EffectDiffers, "points", order2, "0002-v2")},
	{"it was taken back from another user", func(s *Snapshot) { s.find("points").fact(cancel2).Effect.UserID = "user-2" }, one(EffectDiffers, "points", order2, cancel2)},
	{"something was taken back although the payment was refused", func(s *Snapshot) {
		unfinish(s, "points", "0002-v2", "REJECTED")
	}, one(EffectUnexpected, "points", order2, cancel2)},
	{"the document is gone", func(s *Snapshot) {
		s.find("search").fact("0001-v1").Effect, s.find("search").fact(paid1).Effect = nil, nil
	}, one(EffectMissing, "search", order1, paid1)},
	{"the document is behind", func(s *Snapshot) { s.find("search").fact(paid1).Effect.Version = 1 }, one(EffectDiffers, "search", order1, paid1)},
	{"the document shows another state", func(s *Snapshot) { s.find("search").fact(paid1).Effect.State = event.StatusClosed }, one(EffectDiffers, "search", order1, paid1)},
	{"the document is of a version that never was", func(s *Snapshot) { s.find("search").fact(paid1).Effect.Version = 9 }, one(EffectDiffers, "search", order1, paid1)},
	{"the document has another title", func(s *Snapshot) { s.find("search").fact(paid1).Effect.Digest = "other" }, one(EffectDiffers, "search", order1, paid1)},
	{"the document was healed, and has another title", func(s *Snapshot) {
		for _, id := range []string{"0001-v1", paid1} {
			f := s.find("search").fact(id)
			f.Outcome, f.Effect.Digest = superseded, "other"
		}
	}, one(EffectDiffers, "search", order1, paid1)},
	{"the document was healed, and the order and its events were restored to before", func(s *Snapshot) {
		for _, id := range []string{"0001-v1", paid1} {
			f := s.find("search").fact(id)
			f.Outcome, f.Effect.Version, f.Effect.State = superseded, 3, event.StatusCanceled
		}
	}, one(EffectDiffers, "search", order1, paid1)},
	{"the order's title was changed without an event", func(s *Snapshot) { s.Orders[0].Digest = "other" }, one(EffectDiffers, "search", order1, paid1)},
	{"the order's state was set back, and so its contents are others", func(s *Snapshot) {
		s.Orders[0].Status, s.Orders[0].Digest = event.StatusCreated, "other"
	}, one(History, "", order1, "")},
	{"the notice of a payment is that of a cancellation", func(s *Snapshot) { s.find("notify").fact(paid1).Effect.Kind = canceled }, one(EffectMissing, "notify", order1, paid1)},
	{"a notice was given up", func(s *Snapshot) { s.find("notify").fact(paid1).Effect.State = "FAILED" }, one(EffectFailed, "notify", order1, paid1)},
	{"nobody knows whether a notice was sent", func(s *Snapshot) { s.find("notify").fact(paid1).Effect.State = "UNKNOWN" }, one(EffectUnknown, "notify", order1, paid1)},
	{"a notice is pending for an hour", func(s *Snapshot) {
		f := s.find("notify").fact(paid1)
		f.Effect.State, f.UpdatedAt = "PENDING", longAgo()
	}, one(EffectLate, "notify", order1, paid1)},
}

func TestEachDamageIsReportedAndNothingElse(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, d := range damages {
		seen[d.want[0].Kind] = true
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s := threeOrders()
			d.do(&s)
			require.Truef(t, slices.EqualFunc(d.want, Compare(s).Findings, sameFinding), "got %+v", Compare(s).Findings)
		})
	}
	for kind, next := range nextStep {
		require.True(t, seen[kind], "no test injects %s", kind)
		require.NotEmpty(t, next)
	}
}

// legal are states that look like damage and are none.
var legal = []damage{
	{name: "an event has not left the outbox yet", do: func(s *Snapshot) {
		unsend(&s.Orders[0].Events[1])
		lose(s, paid1)
		asOf(s, order1, 1)
	}},
	{name: "an event was applied although the relay does not know that it left", do: func(s *Snapshot) { unsend(&s.Orders[0].Events[1]) }},
	{name: "an event at the committed offset is in flight", do: func(s *Snapshot) {
		lose(s, paid1)
		asOf(s, order1, 1)
		for _, g := range s.Groups {
			g.Committed[1] = 12
		}
	}},
	{name: "a group that has committed nothing has everything in flight", do: func(s *Snapshot) {
		g := s.find("points")
		g.Facts = nil
		for p := range g.Committed {
			g.Committed[p] = -1
		}
	}},
	{name: "an event is retried or waits", do: func(s *Snapshot) {
		unfinish(s, "points", "0002-v2", "RETRY")
		unfinish(s, "points", cancel2, "WAITING")
	}},
	{name: "the business refused a payment, and so nothing is taken back", do: func(s *Snapshot) {
		unfinish(s, "points", "0002-v2", "REJECTED")
		f := s.find("points").fact(cancel2)
		f.Outcome, f.Effect = ignored, nil
	}},
	{name: "an old event came after a newer one", do: func(s *Snapshot) { s.find("search").fact("0001-v1").Outcome = superseded }},
	{name: "the document is written and the log not yet", do: func(s *Snapshot) { s.find("search").lose(paid1); s.find("search").Committed[1] = 12 }},
	{name: "an event is superseded by one whose log row is not written yet", do: func(s *Snapshot) {
		g := s.find("search")
		g.fact("0002-v2").Outcome = superseded
		g.lose(cancel2)
		g.Committed[2] = 23
	}},
	{name: "a source that does not tell what its orders contain", do: func(s *Snapshot) { s.Orders[0].Digest = "" }},
	{name: "a service that does not tell what its copies contain", do: func(s *Snapshot) { s.find("search").fact(paid1).Effect.Digest = "" }},
	{name: "a service that does not tell whose its effects are", do: func(s *Snapshot) { s.find("points").fact(paid1).Effect.UserID = "" }},
	{name: "a copied service with effects of its own kind", do: func(s *Snapshot) {
		g := Group{Name: "coupons", Committed: s.Groups[0].Committed}
		for _, o := range s.Orders {
			for _, e := range o.Events {
				f := appliedFact("coupons", o, e)
				f.Outcome, f.Effect = applied, &facts.Effect{Kind: "COUPON", Copies: 1}
				g.Facts = append(g.Facts, f)
			}
		}
		s.Groups = append(s.Groups, g)
	}},
}

func TestWhatOnlyLooksLikeDamageIsNotReported(t *testing.T) {
	t.Parallel()
	for _, l := range legal {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := threeOrders()
			l.do(&s)
			require.Empty(t, Compare(s).Findings)
		})
	}
}

func unsend(e *facts.Sent) { e.Status, e.Partition, e.Offset = "RETRY", nil, nil }

func unfinish(s *Snapshot, group, eventID, status string) {
	f := s.find(group).fact(eventID)
	f.Status, f.Outcome, f.Effect = status, "", nil
}

func lose(s *Snapshot, eventID string) {
	for i := range s.Groups {
		s.Groups[i].lose(eventID)
	}
}

// asOf puts the document of an order back to a version.
func asOf(s *Snapshot, orderNo string, version int64) {
	for _, f := range s.find("search").Facts {
		if f.OrderNo == orderNo {
			f.Effect.Version, f.Effect.State, f.Effect.Digest = version, event.StatusCreated, "as of that version"
		}
	}
}

func TestPointsFollowTheCurrency(t *testing.T) {
	t.Parallel()
	for currency, want := range map[string]int64{"CNY": 123, "JPY": 12_345, "KWD": 12, "CLF": 1} {
		require.Equal(t, want, pointsFor(facts.Order{Amount: 12_345, Currency: currency}), currency)
	}
}

// TestFindingsAreExactlyTheDamages: any number of orders with any legal history, any of them damaged in a random way.
func TestFindingsAreExactlyTheDamages(t *testing.T) {
	t.Parallel()
	histories := [][]string{
		{created}, {created, payment}, {created, cancel}, {created, closed}, {created, payment, cancel}, {created, payment},
	}
	rapid.Check(t, func(t *rapid.T) {
		var orders []facts.Order
		// Order 0 stays whole: a group shows what it does by doing it at least once.
		orders = append(orders, newOrder(0, 1_000, created, payment, cancel))
		for n := range rapid.IntRange(0, 30).Draw(t, "orders") {
			history := rapid.SampledFrom(histories).Draw(t, "history")
			orders = append(orders, newOrder(n+1, rapid.Int64Range(1, 1_000_000).Draw(t, "amount"), history...))
		}
		s := agreeing(orders...)
		var want []Finding
		for i := 1; i < len(s.Orders); i++ {
			o := &s.Orders[i]
			e := &o.Events[rapid.IntRange(0, len(o.Events)-1).Draw(t, "event")]
			g := s.find(rapid.SampledFrom([]string{"notify", "points", "search"}).Draw(t, "group"))
			f := g.fact(e.EventID)
			newest := e.Version == o.Version
			hurt := func(kind, group, eventID string) {
				want = append(want, Finding{Kind: kind, Group: group, OrderNo: o.OrderNo, EventID: eventID})
			}
			switch rapid.IntRange(0, 11).Draw(t, "damage") {
			case 0: // none
			case 1:
				e.Status = "DEAD"
				hurt(OutboxDead, "", e.EventID)
			case 2:
				f.Hash = "other"
				hurt(EventDiffers, g.Name, e.EventID)
			case 3:
				if g.Name != "search" { // its document would be ahead of the log, which is legal
					f.Status, f.Outcome, f.Effect = "DEAD", "", nil
					hurt(Dead, g.Name, e.EventID)
				}
			case 4:
				o.Version++
				hurt(History, "", "")
			case 5:
				id := "forged-" + e.EventID
				forged := *f
				forged.EventID = id
				g.Facts = append(g.Facts, forged)
				hurt(UnknownEvent, g.Name, id)
			case 6:
				if f.Effect != nil && g.Name != "search" {
					f.Effect.Copies++
					hurt(EffectRepeated, g.Name, e.EventID)
				}
			case 7:
				if newest && g.Name == "search" {
					f.Effect.Version++
					hurt(EffectDiffers, g.Name, e.EventID)
				}
			case 8:
				if f.Effect != nil && g.Name == "points" {
					f.Effect.Amount++
					hurt(EffectDiffers, g.Name, e.EventID)
				}
			case 9:
				g.lose(e.EventID)
				hurt(Missing, g.Name, e.EventID)
			case 10:
				if newest && g.Name == "search" {
					f.Effect.Digest = "other"
					hurt(EffectDiffers, g.Name, e.EventID)
				}
			case 11:
				if f.Effect != nil && g.Name == "points" {
					f.Effect.UserID = "user-2"
					hurt(EffectDiffers, g.Name, e.EventID)
				}
			}
		}
		report := Compare(s)
		slices.SortFunc(want, byOrder)
		if !slices.EqualFunc(want, report.Findings, sameFinding) {
			t.Fatalf("want %+v\ngot %+v", want, report.Findings)
		}
		for name, counts := range report.Checked.Groups {
			sum := 0
			for _, n := range counts {
				sum += n
			}
			if sum != report.Checked.Events {
				t.Fatalf("group %s has %d events in its buckets, the source has %d", name, sum, report.Checked.Events)
			}
		}
	})
}
