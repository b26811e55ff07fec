package consumer

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/paycast/shared/event"
)

// Guard keeps derived state from going back in time. The state remembers, per aggregate, the last version that was
// applied to it; the order in which messages arrive proves nothing after a retry, a replay or a change of partitions.
type Guard struct {
	awaited          []string
	gaps, superseded prometheus.Counter
}

// NewGuard allows gaps, as is right where each event carries the whole state, except before events of the awaited
// types: those wait until the versions before them have been applied. Run's MaxWait bounds the wait.
func NewGuard(reg prometheus.Registerer, awaited ...string) *Guard {
	g := &Guard{
		awaited: awaited,
		gaps: prometheus.NewCounter(prometheus.CounterOpts{Name: "projection_version_gaps_total",
			Help: "Events that came before an earlier version of their order had been applied."}),
		superseded: prometheus.NewCounter(prometheus.CounterOpts{Name: "projection_superseded_total",
			Help: "Events that came after a newer version of their order and changed nothing."}),
	}
	reg.MustRegister(g.gaps, g.superseded)
	return g
}

// Admit compares an event with the last applied version of its aggregate, 0 for none. With nil the event is applied,
// and the same version once more is as good as the first time; otherwise the handler returns what Admit returned:
// Superseded for an older version, Waiting for an awaited gap. The write must hold to the version too, as in
// "WHERE last_applied_version < version": another member may have been here between the look and the write.
func (g *Guard) Admit(last int64, e event.Event) error {
	switch {
	case e.AggregateVersion < last:
		g.superseded.Inc()
		return Superseded
	case e.AggregateVersion <= last+1:
		return nil
	}
	g.gaps.Inc()
	if slices.Contains(g.awaited, e.Type) {
		return Waiting(fmt.Errorf("version %d is here and only %d has been applied", e.AggregateVersion, last))
	}
	return nil
}
