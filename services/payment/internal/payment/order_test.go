package payment_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestOrderIsMadeOncePerIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := newStack(t)

	first := s.create("key-1", orderBody())
	require.Equal(t, http.StatusCreated, first.status, "%s", first.body)
	no := decode[order](t, first.body).OrderNo
	require.Equal(t, "/orders/"+no, first.header.Get("Location"))
	s.pay(no, "trade-1") // what becomes of the order does not change the answer

	again := s.create("key-1", orderBody())
	require.Equal(t, first.status, again.status)
	require.Equal(t, string(first.body), string(again.body))

	before := s.tables()
	other := orderBody()
	other["amount"] = 2000
	require.Equal(t, http.StatusUnprocessableEntity, s.create("key-1", other).status)
	require.Equal(t, http.StatusBadRequest, s.create("", orderBody()).status)
	require.Equal(t, http.StatusBadRequest, s.create("two words", orderBody()).status)
	require.Equal(t, before, s.tables())
	require.Equal(t, "1 OrderCreated, 2 PaymentSucceeded", s.events(no))
}

func TestTwinRequestsForOneOrderMakeOne(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	bodies := make([]string, 20)
	var wg sync.WaitGroup
	for i := range bodies {
		wg.Go(func() { bodies[i] = string(s.create("twins", orderBody()).body) })
	}
	wg.Wait()
	for _, body := range bodies {
		require.Equal(t, bodies[0], body)
	}
	require.Equal(t, 1, s.count("select count(*) from t_order"))
	require.Equal(t, 1, s.count("select count(*) from t_outbox_event"))
}

func TestBadOrderIsRefusedByFieldAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	before := s.tables()
	for field, values := range map[string][]any{
		"user_id":  {nil, "", 7, strings.Repeat("x", 129)},
		"phone":    {nil, "", "call me", "0163296000", "+44 1632 960001"},
		"title":    {nil, "", 3, strings.Repeat("é", 201)},
		"amount":   {nil, 0, -1, 19.99, "1999", 1_000_000_000_001},
		"currency": {nil, "", 7, "euro", "eur", "QQQ", "XXX", "XTS", "XAU", "XDR"}, // the last four have no minor unit
	} {
		for _, value := range values {
			body := orderBody()
			body[field] = value
			a := s.create(uuid.NewString(), body)
			require.Equal(t, http.StatusBadRequest, a.status, "%s = %v: %s", field, value, a.body)
			require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
			require.Contains(t, string(a.body), field)
			require.NotContains(t, string(a.body), phone)
		}
	}
	require.Equal(t, before, s.tables())
}

func TestUnknownFieldsOfAnOrderAreAccepted(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	body := orderBody()
	body["coupon"] = map[string]any{"amount": 5}
	require.Equal(t, http.StatusCreated, s.create("k", body).status)
}

func TestCancellingIsRepeatable(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no := s.newOrder()
	first := s.cancel(no)
	require.Equal(t, http.StatusOK, first.status, "%s", first.body)
	require.Equal(t, "CANCELED", decode[order](t, first.body).Status)
	before := s.tables()
	again := s.cancel(no)
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, string(first.body), string(again.body))
	require.Equal(t, before, s.tables())
	require.Equal(t, "1 OrderCreated, 2 OrderCanceled", s.events(no))
	require.Empty(t, s.get(no).Incidents)
}

func TestCancellingAPaidOrderLeavesARefundDue(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no := s.newOrder()
	s.pay(no, "trade-1")
	first := s.cancel(no)
	require.Equal(t, http.StatusOK, first.status)
	require.Equal(t, string(first.body), string(s.cancel(no).body))

	o := s.get(no)
	require.Equal(t, "CANCELED", o.Status)
	require.EqualValues(t, 3, o.Version)
	require.Equal(t, "trade-1", o.Payment["trade_no"], "the payment stays what it was")
	require.NotNil(t, o.PaidAt)
	require.Len(t, o.Incidents, 1)
	require.Equal(t, "refund_due", o.Incidents[0].Kind)
	require.Equal(t, "trade-1", o.Incidents[0].TradeNo)
	require.Equal(t, "1999 EUR", o.Incidents[0].Received)
	require.Equal(t, "OPEN", o.Incidents[0].State)
	require.Equal(t, "1 OrderCreated, 2 PaymentSucceeded, 3 OrderCanceled", s.events(no))
}

func TestClosedOrderCannotBeCancelled(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no := s.newOrder()
	require.Equal(t, http.StatusOK, s.callback("w", encode(t, notice("payment.closed", no, ""))).status)
	before := s.tables()
	require.Equal(t, http.StatusConflict, s.cancel(no).status)
	require.Equal(t, before, s.tables())
	require.Equal(t, "1 OrderCreated, 2 OrderClosed", s.events(no))
}

func TestUnknownOrdersAreNotFoundWhateverTheirNumber(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	for _, no := range []string{uuid.NewString(), "x", "%00", "%ff", "..%2f..", "00000000-0000-0000-0000-00000000000%00"} {
		a := send(t, "GET", s.url+"/orders/"+no, nil, nil)
		require.Equal(t, http.StatusNotFound, a.status, "%q: %s", no, a.body)
		require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
		require.Equal(t, http.StatusNotFound, s.cancel(no).status, "%q", no)
	}
	require.Equal(t, http.StatusMethodNotAllowed, send(t, "DELETE", s.url+"/orders", nil, nil).status)
}
