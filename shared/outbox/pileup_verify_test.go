//go:build verify

package outbox

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
)

// claimTimes claims ten rows at a time, the way a relay does that is woken for each commit: a look at the lanes and then
// a claim from the very start. What was claimed is due again for the next time.
func (s *stage) claimTimes(r *Relay, times int) (p50, p99 time.Duration) {
	s.t.Helper()
	took := make([]time.Duration, times)
	for i := range took {
		lanes, _, err := r.due(s.t.Context())
		require.NoError(s.t, err)
		require.NotEmpty(s.t, lanes)
		begun := time.Now()
		rows, _, err := r.claimAndRead(s.t.Context(), r.c.rule().Begin("x"), &lane{destination: event.Topic}, 10)
		took[i] = time.Since(begun)
		require.NoError(s.t, err)
		require.Len(s.t, rows, 10)
		for _, row := range rows {
			s.exec("update t_outbox_event set status = 'PENDING', owner_token = null, lease_until = null where event_id = $1", row.eventID)
		}
	}
	slices.Sort(took)
	return took[times/2], took[times*99/100]
}

// The whole size, and time besides pages. docs/bench/pile-up.md keeps what was seen.
func TestFullPileUpSkipsNothingAndClaimsTakeAsLongAsOnAFreshTable(t *testing.T) {
	const sent, dead, times = 300_000, 24_000, 200
	fresh, piled := setup(t), setup(t)
	fresh.fill("due", pileUpDue, 60)
	fresh.exec("analyze t_outbox_event")
	p := piled.pileUp(sent, dead)
	freshRelay, piledRelay := fresh.relay(), piled.relay()
	fresh50, fresh99 := fresh.claimTimes(freshRelay, times)
	piled50, piled99 := piled.claimTimes(piledRelay, times)
	t.Logf("%d sent rows, %d dead versions; a claim's p50 and p99: %v and %v on the fresh table, %v and %v here; ratios %.1f and %.1f",
		sent, dead, fresh50, fresh99, piled50, piled99, float64(piled50)/float64(fresh50), float64(piled99)/float64(fresh99))
	require.Less(t, piled50, 10*fresh50, "not in the same order")
	p.requireNothingSkipped()
}
