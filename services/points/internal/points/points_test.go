package points_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
)

func TestAPaymentCreditsItsCustomerOnce(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.serve()
	s.send(record(paid("o-1", "ann")))
	s.hasPoints("ann", 12, 1)
}

func TestFiftyCopiesOfOneEventCreditOnce(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.serve()
	for range 50 {
		s.send(record(paid("o-1", "ann")))
	}
	s.send(record(paid("o-1b", "ann"))) // the last one in
	s.hasPoints("ann", 24, 2)
	s.logged("SUCCESS", 2)
	require.Zero(t, s.count("SELECT count(*) FROM t_dead_letter"))
}

func TestUndecodableBytesAreKeptExactlyAndTheNextMessageIsHandled(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.serve()
	garbage := event.Record{Key: []byte("o-1"), Value: []byte("\x00\xff not json \r\n"), Headers: []event.Header{
		{Key: "ce_id", Value: []byte("a")}, {Key: "ce_id", Value: nil}, {Key: "x", Value: []byte{0, 1, 0xff}}}}
	s.send(garbage, record(paid("o-1", "ann"))) // the same key, so the same partition
	s.hasPoints("ann", 12, 1)
	var letter struct {
		RecordKey, Payload, Headers []byte
		ErrorCode                   string
	}
	require.NoError(t, s.db.Raw("SELECT record_key, payload, headers, error_code FROM t_dead_letter").Scan(&letter).Error)
	require.Equal(t, garbage.Key, letter.RecordKey)
	require.Equal(t, garbage.Value, letter.Payload)
	require.JSONEq(t, `[{"key":"Y2VfaWQ=","value":"YQ=="},{"key":"Y2VfaWQ=","value":null},{"key":"eA==","value":"AAH/"}]`, string(letter.Headers))
	require.Equal(t, "undecodable", letter.ErrorCode)
}

func TestTheSameIdWithAnotherBodyIsADeadLetterAndChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.serve()
	first := paid("o-1", "ann")
	second := first
	second.Payload = []byte(`{"order_no":"o-1","user_id":"eve","amount":999900,"currency":"EUR","status":"PAID","version":2}`)
	s.send(record(first), record(second), record(paid("o-1b", "ann")))
	s.hasPoints("ann", 24, 2)
	s.hasLetters(1)
	s.hasPoints("eve", 0, 0)
	var letter struct {
		Payload               []byte
		ErrorClass, FirstHash string
	}
	require.NoError(t, s.db.Raw("SELECT payload, error_class, first_hash FROM t_dead_letter").Scan(&letter).Error)
	require.Equal(t, second.Payload, letter.Payload)
	require.Equal(t, "conflict", letter.ErrorClass)
	require.Equal(t, first.Hash(), letter.FirstHash)
	require.EqualValues(t, 1, s.count("SELECT count(*) FROM t_message_consume WHERE event_id = ? AND status = 'SUCCESS' AND request_hash = ?", first.ID, first.Hash()))
}

func TestAnUnknownCurrencyIsADeadLetter(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.serve()
	e := orderEvent(event.PaymentSucceeded, event.Order{OrderNo: "o-1", UserID: "ann", Amount: 1250, Currency: "EUX",
		Status: event.StatusPaid, Version: 2, PaidAt: &someTime})
	s.send(record(e))
	s.logged("DEAD", 1)
	require.EqualValues(t, 1, s.count("SELECT count(*) FROM t_dead_letter WHERE event_id = ? AND error_class = 'bad_data'", e.ID))
	s.send(record(paid("o-1b", "ann")))
	s.hasPoints("ann", 12, 1)
}

func TestTheLedgerIsAppendOnly(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	for _, statement := range []string{"UPDATE t_ledger SET points = 1", "DELETE FROM t_ledger", "TRUNCATE t_ledger"} {
		require.ErrorContains(t, s.db.Exec(statement).Error, "append-only", statement)
	}
}

func TestFactsShowTheEffectThatIsThere(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.serve()
	e := paid("o-1", "ann")
	s.send(record(e), record(orderEvent(event.OrderCreated, event.Order{OrderNo: "o-1", UserID: "ann", Amount: 1250, Currency: "EUR",
		Status: event.StatusCreated, Version: 1})))
	s.logged("SUCCESS", 2)
	var page struct {
		Group string
		Facts []map[string]any
	}
	require.NoError(t, s.get("OPS_ADDR", "/ops/facts?event_id="+e.ID, &page))
	require.Equal(t, "points", page.Group)
	require.Len(t, page.Facts, 1)
	fact := page.Facts[0]
	require.Equal(t, "applied", fact["outcome"])
	require.Equal(t, e.Hash(), fact["hash"])
	require.Equal(t, map[string]any{"kind": "CREDIT", "ref": fmt.Sprint(s.count("SELECT entry_id FROM t_ledger")), "user_id": "ann", "amount": 12., "copies": 1.}, fact["effect"])
}
