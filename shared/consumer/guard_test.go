package consumer

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
)

func at(eventType string, version int64) event.Event {
	return event.Event{Type: eventType, AggregateVersion: version}
}

func TestTheGuardLetsStateOnlyGoForward(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := NewGuard(prometheus.NewRegistry(), "g", nil)
		var last, highest int64
		for _, v := range rapid.SliceOf(rapid.Int64Range(1, 9)).Draw(t, "versions as they arrive") {
			if g.Admit(t.Context(), last, at(event.OrderCreated, v)) == nil {
				last = v
			}
			highest = max(highest, v)
		}
		if last != highest {
			t.Fatalf("the state is at %d and %d has been seen", last, highest)
		}
	})
}

// Each policy answers for its own types, and the metrics count what has been decided, each event once.
func TestAGapIsWhatThePolicyOfItsEventTypeSays(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	var owner int64
	var ownerErr error
	g := NewGuard(reg, "g", Gaps{
		event.PaymentSucceeded: Allowed,
		event.OrderCanceled:    Awaited,
		event.OrderClosed:      Healed(func(context.Context, event.Event) (int64, error) { return owner, ownerErr }),
	})
	lane := context.WithValue(t.Context(), deliveryKey{}, &delivered{Delivery: Delivery{Mode: FromLane}})
	transaction := context.WithValue(t.Context(), insideKey{}, true)
	down := Down(errors.New("no answer"))
	for name, c := range map[string]struct {
		ctx              context.Context
		last             int64
		e                event.Event
		owner            int64
		ownerErr         error
		is               error
		class            string
		gaps, superseded float64
	}{
		"older":                           {last: 3, e: at(event.OrderCanceled, 2), is: Superseded, superseded: 1},
		"the same once more":              {last: 3, e: at(event.OrderCanceled, 3)},
		"the next":                        {last: 3, e: at(event.OrderCanceled, 4)},
		"a gap without a policy":          {e: at(event.OrderCreated, 2), gaps: 1},
		"a gap that is allowed":           {e: at(event.PaymentSucceeded, 2), gaps: 1},
		"a gap that is awaited":           {last: 1, e: at(event.OrderCanceled, 3), class: inbox.ClassWaiting, gaps: 1},
		"awaited, at a later look":        {ctx: lane, last: 1, e: at(event.OrderCanceled, 3), class: inbox.ClassWaiting},
		"healed to this version":          {e: at(event.OrderClosed, 2), owner: 2, gaps: 1},
		"healed beyond it":                {e: at(event.OrderClosed, 2), owner: 3, is: Superseded, gaps: 1, superseded: 1},
		"the owner is behind":             {e: at(event.OrderClosed, 2), owner: 1, class: inbox.ClassTransient, gaps: 1},
		"the owner does not answer":       {e: at(event.OrderClosed, 2), ownerErr: down, class: classDown},
		"a heal inside a transaction":     {ctx: transaction, e: at(event.OrderClosed, 2), owner: 2, is: errHealInTransaction, gaps: 1},
		"nothing is healed without a gap": {last: 1, e: at(event.OrderClosed, 2), ownerErr: down},
		"nothing is healed that is older": {last: 3, e: at(event.OrderClosed, 2), ownerErr: down, is: Superseded, superseded: 1},
		"a heal that fails":               {e: at(event.OrderClosed, 2), ownerErr: BadData(errors.New("x")), class: inbox.ClassBadData, gaps: 1},
	} {
		if c.ctx == nil {
			c.ctx = t.Context()
		}
		owner, ownerErr = c.owner, c.ownerErr
		gaps, superseded := testutil.ToFloat64(g.gaps), testutil.ToFloat64(g.superseded)
		err := g.Admit(c.ctx, c.last, c.e)
		switch {
		case c.is != nil:
			require.ErrorIs(t, err, c.is, name)
		case c.class != "":
			require.Error(t, err, name)
			require.Equal(t, c.class, class(err), name)
		default:
			require.NoError(t, err, name)
		}
		require.InDelta(t, c.gaps, testutil.ToFloat64(g.gaps)-gaps, 0, "gaps: %s", name)
		require.InDelta(t, c.superseded, testutil.ToFloat64(g.superseded)-superseded, 0, "superseded: %s", name)
	}
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	require.Empty(t, problems)
}
