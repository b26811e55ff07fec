package points_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
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
