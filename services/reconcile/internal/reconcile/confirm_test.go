package reconcile

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/facts"
	"example.com/paycast/shared/ops"
)

// guarded is a service that knows another token.
func guarded(t testing.TB, other string) string {
	server := httptest.NewServer(ops.Guard(other, http.NotFoundHandler()))
	t.Cleanup(server.Close)
	return server.URL
}

// TestAnEventThatIsConsumedWhileTheGroupAnswersIsInFlight shows why the offsets come before the log: the group handles
// an event and commits its offset at the very moment in which its log is being read.
func TestAnEventThatIsConsumedWhileTheGroupAnswersIsInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeOrders())
	w.commitOne("points", 1, 12) // the payment of order 1 is the next to be read
	w.change(func(s *Snapshot) { s.find("points").lose(paid1) })
	w.page = 1000
	w.meddle = func(part string, _ *http.Request) {
		if part == "points" { // the answer is without the row, and the commit is there before the answer arrives
			w.commitOne("points", 1, 13)
		}
	}
	s, err := w.parts().Snapshot(t.Context())
	require.NoError(t, err)
	s.Now, s.Late = now, late
	report := Compare(s)
	require.Empty(t, report.Findings)
	require.Equal(t, 1, report.Checked.Groups["points"][inFlight])

	// The other way round, the same facts are a false alarm.
	s.find("points").Committed[1] = 13
	require.Equal(t, one(Missing, "points", order1, paid1)[0].Kind, Compare(s).Findings[0].Kind)
}

// TestAnEventThatMovesDuringTheSnapshotIsNotReported: without the second look, each of these is a finding.
func TestAnEventThatMovesDuringTheSnapshotIsNotReported(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(s *Snapshot){
		"a notice that was unknown is sent":    func(s *Snapshot) { s.find("notify").fact(paid1).Effect.State = "SENT" },
		"a dead letter is replayed":            func(s *Snapshot) { *s.find("points").fact(paid1) = *threeOrdersFact("points", paid1) },
		"the order is cancelled, all are done": func(s *Snapshot) { *s = cancelled() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, threeOrders())
			w.change(func(s *Snapshot) {
				s.find("notify").fact(paid1).Effect.State = "UNKNOWN"
				unfinish(s, "points", paid1, "DEAD")
			})
			parts := w.parts()
			s, err := parts.Snapshot(t.Context())
			require.NoError(t, err)
			s.Now, s.Late = now, late
			found := Compare(s).Findings
			require.Len(t, found, 2)
			w.change(move)
			w.change(func(s *Snapshot) { // whichever moved, the other is repaired too
				s.find("notify").fact(paid1).Effect.State = "SENT"
				*s.find("points").fact(paid1) = *threeOrdersFact("points", paid1)
			})
			confirmed, err := parts.Confirm(t.Context(), s, found)
			require.NoError(t, err)
			require.Empty(t, confirmed)
		})
	}
}

func threeOrdersFact(group, eventID string) *facts.Fact {
	s := threeOrders()
	return s.find(group).fact(eventID)
}

// cancelled is threeOrders with order 1 cancelled.
func cancelled() Snapshot {
	return agreeing(newOrder(1, 12_345, created, payment, cancel), newOrder(2, 99, created, payment, cancel), newOrder(3, 500, created, closed))
}

// TestAnOrderThatMovesDuringTheSecondLookIsLookedAtAgain: the order is cancelled, and every group has handled that, after
// the second look has asked for the order's events. Its new event has an offset below the committed one and its row was
// not asked for; its document is ahead of all known events.
func TestAnOrderThatMovesDuringTheSecondLookIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeOrders())
	w.change(func(s *Snapshot) { s.find("points").fact(paid1).Effect.Amount = 7 })
	parts := w.parts()
	s, err := parts.Snapshot(t.Context())
	require.NoError(t, err)
	s.Now, s.Late = now, late
	found := Compare(s).Findings
	var looks atomic.Int32
	w.meddle = func(part string, r *http.Request) {
		if part == "source" && r.URL.Query().Get("order_no") == order1 && looks.Add(1) == 2 {
			w.change(func(s *Snapshot) {
				*s = cancelled()
				s.find("points").fact(paid1).Effect.Amount = 7
			})
		}
	}
	confirmed, err := parts.Confirm(t.Context(), s, found)
	require.NoError(t, err)
	require.True(t, slices.EqualFunc(one(EffectDiffers, "points", order1, paid1), confirmed, sameFinding), "%+v", confirmed)
	require.Equal(t, int32(3), looks.Load())
	require.Equal(t, event.StatusCanceled, w.is.Orders[0].Status)
}

func TestAFindingThatBecameAnotherIsReportedAsWhatItIsNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeOrders())
	parts := w.parts()
	w.change(func(s *Snapshot) { s.find("points").lose(paid1) })
	s, err := parts.Snapshot(t.Context())
	require.NoError(t, err)
	s.Now, s.Late = now, late
	found := Compare(s).Findings
	require.Equal(t, Missing, found[0].Kind)
	w.change(func(s *Snapshot) { *s = threeOrders(); unfinish(s, "points", paid1, "DEAD") })
	confirmed, err := parts.Confirm(t.Context(), s, found)
	require.NoError(t, err)
	require.True(t, slices.EqualFunc(one(Dead, "points", order1, paid1), confirmed, sameFinding), "%+v", confirmed)
}

// TestWhatWasSeenOnlyOnceIsLeftToTheNextRun: a finding counts when it was seen twice.
func TestWhatWasSeenOnlyOnceIsLeftToTheNextRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeOrders())
	parts := w.parts()
	w.change(func(s *Snapshot) { s.find("points").lose(paid1) })
	s, err := parts.Snapshot(t.Context())
	require.NoError(t, err)
	s.Now, s.Late = now, late
	found := Compare(s).Findings
	w.change(func(s *Snapshot) { unfinish(s, "notify", paid1, "DEAD") })
	confirmed, err := parts.Confirm(t.Context(), s, found)
	require.NoError(t, err)
	require.True(t, slices.EqualFunc(one(Missing, "points", order1, paid1), confirmed, sameFinding), "%+v", confirmed)
}
