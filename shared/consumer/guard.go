package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"

	"example.com/paycast/shared/event"
)

// Gap is what becomes of an event when the version before it has not come: nil applies it all the same, any other answer
// is the handler's. last is the newest version before it that has come, 0 for none.
type Gap func(ctx context.Context, last int64, e event.Event) error

// Gaps gives the policy of each event type. A type that is not named is Allowed.
type Gaps map[string]Gap

// Allowed applies the event. It is right where the event alone makes the state what it should be, because it carries
// all of it or because nothing before it matters.
func Allowed(context.Context, int64, event.Event) error { return nil }

// Awaited lets the event wait until the versions before it have come, for at most CONSUMER_MAX_WAIT; then it is a dead
// letter. It is right where the event changes what an earlier one must have made.
func Awaited(_ context.Context, last int64, e event.Event) error {
	return Waiting(fmt.Errorf("version %d is here and version %d is missing", e.AggregateVersion, last+1))
}

// Healed asks the owner of the truth instead of waiting. heal brings the state to the aggregate as it is there now, whole
// and at its own version, and returns that version. It must be safe to repeat, keep to ctx, and answer Down when the
// owner does not answer: then nothing is recorded and the event comes again. An owner that is behind the event
// contradicts it; that is tried again, and ends as a dead letter for a person to look at.
//
// heal talks over the network, so it has no place in a transaction: under InTransaction it is refused.
func Healed(heal func(ctx context.Context, e event.Event) (version int64, err error)) Gap {
	return func(ctx context.Context, _ int64, e event.Event) error {
		if ctx.Value(insideKey{}) != nil {
			return errHealInTransaction
		}
		version, err := heal(ctx, e)
		switch {
		case err != nil:
			return err
		case version < e.AggregateVersion:
			return Transient(fmt.Errorf("version %d is here and its owner has only version %d", e.AggregateVersion, version))
		case version > e.AggregateVersion:
			return Superseded
		}
		return nil
	}
}

var errHealInTransaction = errors.New("consumer: a gap cannot be healed inside a transaction")

// Guard keeps derived state from going back in time, and says what a missing version means. The order in which messages
// arrive proves nothing after a retry, a replay or a change of partitions; the aggregate's version does.
type Guard struct {
	policies         Gaps
	group            string
	gaps, superseded prometheus.Counter
}

// NewGuard makes the guard of a group, with its metrics.
func NewGuard(reg prometheus.Registerer, group string, policies Gaps) *Guard {
	labels := prometheus.Labels{"group": group}
	g := &Guard{
		policies: policies, group: group,
		gaps: prometheus.NewCounter(prometheus.CounterOpts{Name: "projection_version_gaps_total", ConstLabels: labels,
			Help: "Events that came before an earlier version of their order."}),
		superseded: prometheus.NewCounter(prometheus.CounterOpts{Name: "projection_superseded_total", ConstLabels: labels,
			Help: "Events that found newer state of their order and changed nothing."}),
	}
	reg.MustRegister(g.gaps, g.superseded)
	return g
}

// Admit is for state that is a copy of the aggregate and remembers its version: last, 0 for none. With nil the event is
// applied, and the same version once more is as good as the first time; any other answer is what the handler returns.
// The write must hold to the version too, as in "WHERE last_applied_version < version": another member may have been
// here between the look and the write.
func (g *Guard) Admit(ctx context.Context, last int64, e event.Event) error {
	switch {
	case e.AggregateVersion < last:
		return g.Supersede()
	case e.AggregateVersion <= last+1:
		return nil
	}
	return g.gap(ctx, last, e)
}

// Supersede is the answer of a handler whose write found newer state.
func (g *Guard) Supersede() error {
	g.superseded.Inc()
	return Superseded
}

func (g *Guard) gap(ctx context.Context, last int64, e event.Event) (err error) {
	if policy := g.policies[e.Type]; policy != nil {
		err = policy(ctx, last, e)
	}
	if class(err) != classDown && DeliveryOf(ctx).Mode != FromLane { // once, and not again at each look of the lane
		g.gaps.Inc()
	}
	if errors.Is(err, Superseded) {
		return g.Supersede()
	}
	return err
}

// Whatever has been decided about a version, it has come: unfinished and dead ones hold later versions by themselves,
// and one that an operator lets others pass is not waited for.
const cameBefore = `
SELECT coalesce(max(aggregate_version), 0) FROM (
    SELECT aggregate_version FROM t_message_consume
    WHERE consumer_group = @group AND aggregate_id = @aggregate AND aggregate_version < @version
    UNION ALL
    SELECT aggregate_version FROM t_message_consume_archive
    WHERE consumer_group = @group AND aggregate_id = @aggregate AND aggregate_version < @version) came`

// Before puts the guard before a function for InTransaction whose effects add up, such as entries of a ledger. There
// the consume log remembers the versions. An older version is never superseded, since what it adds would be missing;
// types without a policy are not looked at.
func (g *Guard) Before(fn func(ctx context.Context, tx *gorm.DB, e event.Event) error) func(context.Context, *gorm.DB, event.Event) error {
	return func(ctx context.Context, tx *gorm.DB, e event.Event) error {
		if g.policies[e.Type] != nil {
			var last int64
			args := map[string]any{"group": g.group, "aggregate": e.AggregateID, "version": e.AggregateVersion}
			if err := tx.Raw(cameBefore, args).Scan(&last).Error; err != nil {
				return fmt.Errorf("looking for earlier versions: %w", err)
			}
			if err := g.Admit(ctx, last, e); err != nil {
				return err
			}
		}
		return fn(ctx, tx, e)
	}
}
