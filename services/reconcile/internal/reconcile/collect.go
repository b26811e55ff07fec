package reconcile

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/facts"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/ops"
)

// Parts is whom to ask.
type Parts struct {
	Source  ops.Client
	Groups  map[string]ops.Client // by the group's name
	Brokers string
}

// Snapshot asks everybody. The order of reading is the in-flight rule: for each group first its offsets, then its log;
// and the source last, so that it knows every event that a log can have. Any part that cannot be asked is an error.
func (p Parts) Snapshot(ctx context.Context) (Snapshot, error) {
	groups, err := p.eachGroup(ctx, func(ctx context.Context, client ops.Client, g *Group) error {
		return pages(ctx, client, func(page facts.GroupPage) (string, error) {
			g.Facts = append(g.Facts, page.Facts...)
			g.Faults = append(g.Faults, page.Faults...)
			return page.Next, sameGroup(g.Name, page)
		})
	})
	if err != nil {
		return Snapshot{}, err
	}
	for i := range groups {
		groups[i].Promise = promiseOf(groups[i].Facts)
	}
	s := Snapshot{Groups: groups}
	err = pages(ctx, p.Source, func(page facts.SourcePage) (string, error) {
		s.Orders = append(s.Orders, page.Orders...)
		return page.Next, nil
	})
	if err != nil {
		return Snapshot{}, fmt.Errorf("asking the source for its facts: %w", err)
	}
	return s, nil
}

// eachGroup reads the offsets of every group and then calls read, for all groups at once. The result is in no special
// order.
func (p Parts) eachGroup(ctx context.Context, read func(context.Context, ops.Client, *Group) error) ([]Group, error) {
	groups := make([]Group, 0, len(p.Groups))
	for name := range p.Groups {
		groups = append(groups, Group{Name: name})
	}
	together, ctx := errgroup.WithContext(ctx)
	for i := range groups {
		g := &groups[i]
		together.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			var err error
			if g.Committed, err = kafka.CommittedOffsets(limited, p.Brokers, g.Name, event.Topic); err != nil {
				return fmt.Errorf("asking kafka for the offsets of group %s: %w", g.Name, err)
			}
			if err := read(ctx, p.Groups[g.Name], g); err != nil {
				return fmt.Errorf("asking group %s for its facts: %w", g.Name, err)
			}
			return nil
		})
	}
	return groups, together.Wait()
}

// sameGroup guards against two addresses that were swapped: one group's log would pass for another's.
func sameGroup(name string, page facts.GroupPage) error {
	if page.Group != name {
		return fmt.Errorf("the service at this address is group %q; check FACTS_URLS", page.Group)
	}
	return nil
}

// pages reads /ops/facts to its end. take returns the page's `next`.
func pages[Page any](ctx context.Context, client ops.Client, take func(Page) (string, error)) error {
	after := ""
	for {
		var page Page
		query := url.Values{"limit": {strconv.Itoa(facts.MaxLimit)}, "after": {after}}
		if err := client.GetJSON(ctx, "/ops/facts", query, &page); err != nil {
			return err
		}
		next, err := take(page)
		if err != nil || next == "" {
			return err
		}
		if next == after {
			return fmt.Errorf("the page after %q is followed by itself", after)
		}
		after = next
	}
}
