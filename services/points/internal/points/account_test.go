package points_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/services/points/internal/points"
	"example.com/paycast/shared/archive"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
)

func TestAnEffectIsSingleEvenWhenItsLogRowIsLost(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.serve()
	e := paid("o-1", "ann")
	s.send(record(e))
	s.hasPoints("ann", 12, 1)
	require.NoError(t, s.db.Exec("DELETE FROM t_message_consume").Error)
	s.send(record(e))
	s.logged("SUCCESS", 1)
	s.hasPoints("ann", 12, 1)
}

func TestASecondPaymentOfAnOrderIsRefusedAndCreditsNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.serve()
	second := paid("o-1", "ann")
	second.ID = event.NewID(second.Type, "o-1", "another trade")
	s.send(record(paid("o-1", "ann")), record(second))
	s.logged("REJECTED", 1)
	s.hasPoints("ann", 12, 1)
}

func TestFaultsShowDamageThatNoEventLeadsTo(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.serve()
	e := paid("o-1", "ann")
	s.send(record(e))
	s.hasPoints("ann", 12, 1)
	s.logged("SUCCESS", 1)
	var page struct{ Faults []map[string]any }
	require.NoError(t, s.get("OPS_ADDR", "/ops/facts", &page))
	require.Empty(t, page.Faults)

	require.NoError(t, s.db.Exec("UPDATE t_account SET balance = 99").Error)
	require.NoError(t, s.db.Exec("DELETE FROM t_message_consume").Error)
	require.NoError(t, s.get("OPS_ADDR", "/ops/facts", &page))
	require.Len(t, page.Faults, 2)
	require.Equal(t, e.ID, page.Faults[0]["event_id"])
	require.Equal(t, "the balance is 99 and its entries sum up to 12", page.Faults[1]["detail"])
}

func TestAnEntryOfAnotherOrderThanItsEventsIsAFault(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.serve()
	e := paid("o-1", "ann")
	s.send(record(e), record(paid("o-2", "ann")))
	s.hasPoints("ann", 24, 2)
	s.byHand("UPDATE t_ledger SET order_no = 'o-3' WHERE order_no = 'o-1'")
	page := s.facts()
	require.Len(t, page.Faults, 1)
	require.Equal(t, e.ID, page.Faults[0].EventID)
}

// The balances agree with the entries, and only the order tells whose the points are.
func TestFactsShowWhoWasCreditedWhoeverShouldHaveBeen(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.serve()
	s.send(record(paid("o-1", "ann")))
	s.hasPoints("ann", 12, 1)
	s.byHand("UPDATE t_ledger SET user_id = 'eve'", "UPDATE t_account SET user_id = 'eve'")
	page := s.facts()
	require.Empty(t, page.Faults)
	require.Len(t, page.Facts, 1)
	require.Equal(t, "eve", page.Facts[0].Effect.UserID)
}

func TestAnEntryWhoseLogRowIsArchivedIsNoFault(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.serve()
	s.send(record(paid("o-1", "ann")))
	s.logged("SUCCESS", 1)
	s.byHand("UPDATE t_message_consume SET first_received_at = now() - interval '2 hours', updated_at = now() - interval '2 hours'")
	moved, err := inbox.Archive(t.Context(), s.db, points.Group, archive.Retention{Window: time.Hour, Kafka: time.Hour, Replay: time.Hour})
	require.NoError(t, err)
	require.Equal(t, 1, moved)
	page := s.facts()
	require.Len(t, page.Facts, 1)
	require.Empty(t, page.Faults)
}
