package reconcile

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"example.com/paycast/shared/facts"
	"example.com/paycast/shared/ops"
)

// Confirm looks a second time at each order that has findings and returns those that are still there. The snapshot took
// a while and the system did not stop for it; a single order is read so that nothing can move unnoticed. What a service
// found in its own database needs no second look: it was one statement.
func (p Parts) Confirm(ctx context.Context, s Snapshot, found []Finding) ([]Finding, error) {
	confirmed := []Finding{}
	suspects := map[string]map[string]bool{} // order → the events that we know of
	first := map[place]bool{}
	for _, f := range found {
		if f.Kind == SelfCheck {
			confirmed = append(confirmed, f)
			continue
		}
		if suspects[f.OrderNo] == nil {
			suspects[f.OrderNo] = map[string]bool{}
		}
		if f.EventID != "" {
			suspects[f.OrderNo][f.EventID] = true
		}
		first[placeOf(f)] = true
	}
	promises := map[string]string{}
	for _, g := range s.Groups {
		promises[g.Name] = g.Promise
	}
	before, err := p.orders(ctx, slices.Collect(maps.Keys(suspects)))
	if err != nil {
		return nil, err
	}
	for len(suspects) > 0 {
		for no, o := range before {
			for _, e := range o.Events {
				suspects[no][e.EventID] = true
			}
		}
		groups, err := p.rows(ctx, suspects)
		if err != nil {
			return nil, err
		}
		after, err := p.orders(ctx, slices.Collect(maps.Keys(suspects)))
		if err != nil {
			return nil, err
		}
		still := Snapshot{Now: s.Now, Late: s.Late, Groups: groups}
		for i := range still.Groups {
			still.Groups[i].Promise = promises[still.Groups[i].Name]
		}
		moved := map[string]map[string]bool{}
		for no, ids := range suspects {
			o, ok := after[no]
			if ok && !slices.EqualFunc(before[no].Events, o.Events, sameEvent) {
				// An event was appended since `before`, and its rows were not asked for. An order has few events, so
				// this ends.
				moved[no] = ids
				drop(still.Groups, no)
			} else if ok {
				still.Orders = append(still.Orders, o)
			}
		}
		for _, f := range Compare(still).Findings {
			if first[placeOf(f)] {
				confirmed = append(confirmed, f)
			}
		}
		maps.DeleteFunc(after, func(no string, _ facts.Order) bool { return moved[no] == nil })
		suspects, before = moved, after
	}
	slices.SortFunc(confirmed, byOrder)
	return confirmed, nil
}

// place is where a difference was seen. Its kind may be another at the second look: what was missing can be dead by now.
type place struct{ group, orderNo, eventID string }

func placeOf(f Finding) place { return place{f.Group, f.OrderNo, f.EventID} }

func sameEvent(a, b facts.Sent) bool { return a.EventID == b.EventID }

// drop takes the rows of an order out of the groups.
func drop(groups []Group, orderNo string) {
	for i := range groups {
		groups[i].Facts = slices.DeleteFunc(groups[i].Facts, func(f facts.Fact) bool { return f.OrderNo == orderNo })
	}
}

// atOnce bounds the questions to one service that are open at a time.
const atOnce = 4

// orders reads single orders from the source. Those that it does not have are not in the result.
func (p Parts) orders(ctx context.Context, numbers []string) (map[string]facts.Order, error) {
	var mu sync.Mutex
	found := make(map[string]facts.Order, len(numbers))
	together, ctx := errgroup.WithContext(ctx)
	together.SetLimit(atOnce)
	for _, no := range numbers {
		if no == "" { // a log row that names no order; the source would take it for a question after all orders
			continue
		}
		together.Go(func() error {
			var page facts.SourcePage
			if err := p.Source.GetJSON(ctx, "/ops/facts", url.Values{"order_no": {no}}, &page); err != nil {
				return fmt.Errorf("asking the source for order %s: %w", no, err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, o := range page.Orders {
				if o.OrderNo == no {
					found[no] = o
				}
			}
			return nil
		})
	}
	return found, together.Wait()
}

// rows reads, per group, the offsets first and then the rows of the given events.
func (p Parts) rows(ctx context.Context, suspects map[string]map[string]bool) ([]Group, error) {
	return p.eachGroup(ctx, func(ctx context.Context, client ops.Client, g *Group) error {
		var mu sync.Mutex
		together, ctx := errgroup.WithContext(ctx)
		together.SetLimit(atOnce)
		for _, ids := range suspects {
			if len(ids) == 0 {
				continue
			}
			together.Go(func() error {
				var page facts.GroupPage
				query := url.Values{"event_id": slices.Sorted(maps.Keys(ids))}
				if err := client.GetJSON(ctx, "/ops/facts", query, &page); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				g.Facts = append(g.Facts, page.Facts...)
				return sameGroup(g.Name, page)
			})
		}
		return together.Wait()
	})
}
