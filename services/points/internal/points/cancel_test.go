package points_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/ops"
)

func TestTheCancellationOfAPaidOrderTakesItsPointsBackOnce(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.serve()
	s.send(record(paid("o-1", "ann")), record(canceled("o-1", "ann")), record(canceled("o-1", "ann")), record(paid("o-1b", "ann")))
	s.hasPoints("ann", 12, 3)
	s.logged("SUCCESS", 3)
	s.asDescribed("/accounts/ann", http.StatusOK)
}

func TestACancellationThatOvertakesItsPaymentWaitsForIt(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.serve()
	s.send(record(canceled("o-1", "ann")))
	s.logged("WAITING", 1)
	require.EqualValues(t, 1, s.count("SELECT count(*) FROM t_message_retry WHERE error_text = ?", missing))
	s.send(record(paid("o-1", "ann")))
	s.hasPoints("ann", 0, 2)
	s.logged("SUCCESS", 2)
}

// missing is the reason of a cancellation when nothing of its order has come.
const missing = "version 3 is here and version 1 is missing"

func TestACancellationWhosePaymentWasDiscardedHasNothingToTakeBack(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.byHand("ALTER TABLE t_ledger ADD CONSTRAINT broken CHECK (points < 0)") // such a payment is a dead letter at once
	s.serve()
	s.send(record(paid("o-1", "ann")), record(canceled("o-1", "ann")))
	s.hasLetters(1)
	s.logged("WAITING", 1)
	letter := s.count("SELECT letter_id FROM t_dead_letter")
	client := ops.Client{BaseURL: "http://" + s.env["OPS_ADDR"], Token: opsToken}
	require.NoError(t, client.PostJSON(t.Context(), fmt.Sprintf("/ops/dead-letters/%d/discard", letter), map[string]string{"actor": "anna", "reason": "it never happened"}, nil))
	s.logged("REJECTED", 1)
	s.logged("SUCCESS", 1)
	require.EqualValues(t, 1, s.count("SELECT count(*) FROM t_message_consume WHERE event_type = ? AND outcome = 'ignored'", event.OrderCanceled))
	s.hasPoints("ann", 0, 0)
}

func TestACancellationWhosePaymentNeverComesIsADeadLetterAfterTheLongestWait(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.env["CONSUMER_MAX_WAIT"] = "1ms"
	s.serve()
	s.send(record(canceled("o-1", "ann")))
	s.hasLetters(1)
	require.EqualValues(t, 1, s.count("SELECT count(*) FROM t_dead_letter WHERE error_class = 'waiting' AND error_text = ?", missing))
	s.hasPoints("ann", 0, 0)
}

func TestTheCancellationOfAnUnpaidOrderChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.serve()
	o := event.Order{OrderNo: "o-1", UserID: "ann", Amount: 1250, Currency: "EUR", Status: event.StatusCreated, Version: 1}
	created := orderEvent(event.OrderCreated, o)
	o.Status, o.PreviousStatus, o.Version = event.StatusCanceled, event.StatusCreated, 2
	s.send(record(created), record(orderEvent(event.OrderCanceled, o)))
	s.logged("SUCCESS", 2)
	s.hasPoints("ann", 0, 0)
	require.EqualValues(t, 2, s.count("SELECT count(*) FROM t_message_consume WHERE outcome = 'ignored'"))
}

// canceled is what payment publishes when an order is cancelled after its payment.
func canceled(orderNo, user string) event.Event {
	return orderEvent(event.OrderCanceled, event.Order{OrderNo: orderNo, UserID: user, Amount: 1250, Currency: "EUR",
		Status: event.StatusCanceled, PreviousStatus: event.StatusPaid, Version: 3, PaidAt: &someTime})
}
