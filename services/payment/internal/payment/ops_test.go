package payment_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/facts"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/service"
)

func TestFactsAreTheWholeTruthInPages(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	var numbers []string
	for range 5 {
		numbers = append(numbers, s.newOrder())
	}
	s.pay(numbers[1], "trade-1")
	s.cancel(numbers[1])

	var seen []facts.Order
	query := url.Values{"limit": {"2"}}
	for pages := 1; ; pages++ {
		var page facts.SourcePage
		require.NoError(t, s.ops.GetJSON(t.Context(), "/ops/facts", query, &page))
		require.LessOrEqual(t, len(page.Orders), 2)
		seen = append(seen, page.Orders...)
		if page.Next == "" {
			require.Equal(t, 3, pages)
			break
		}
		query.Set("after", page.Next)
	}
	require.Len(t, seen, len(numbers))
	for i, o := range seen {
		require.Equal(t, numbers[i], o.OrderNo, "order numbers sort by the time of their making")
		require.NotEmpty(t, o.Events)
		require.EqualValues(t, o.Version, len(o.Events))
		var shown facts.Contents // as copies of the order are made
		require.NoError(t, s.ops.GetJSON(t.Context(), "/ops/orders/"+o.OrderNo, nil, &shown))
		require.Equal(t, shown.Digest(), o.Digest)
	}
	paid := seen[1]
	require.Equal(t, "CANCELED", paid.Status)
	require.EqualValues(t, 3, paid.Version)
	require.EqualValues(t, 1999, paid.Amount)
	require.NotNil(t, paid.PaidAt)
	for i, kind := range []string{event.OrderCreated, event.PaymentSucceeded, event.OrderCanceled} {
		e := paid.Events[i]
		require.Equal(t, kind, e.EventType)
		require.EqualValues(t, i+1, e.Version)
		require.Equal(t, "PENDING", e.Status)
		require.Equal(t, event.Topic, e.Topic)
		require.Len(t, e.Hash, 64)
		require.Nil(t, e.Offset, "no relay has run")
	}

	var one facts.SourcePage
	require.NoError(t, s.ops.GetJSON(t.Context(), "/ops/facts", url.Values{"order_no": {numbers[3]}}, &one))
	require.Len(t, one.Orders, 1)
	require.Equal(t, numbers[3], one.Orders[0].OrderNo)
	require.Empty(t, one.Next)
	for _, bad := range []string{"0", "-1", "x", "2001"} {
		requireStatus(t, http.StatusBadRequest, s.ops.GetJSON(t.Context(), "/ops/facts", url.Values{"limit": {bad}}, &one))
	}
}

func TestIncidentsAreListedInPagesAndByState(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	for range 3 {
		no := s.newOrder()
		s.pay(no, "trade-"+no)
		s.cancel(no)
	}
	s.exec("update t_incident set state = 'RESOLVED', resolved_at = now() where id = (select min(id) from t_incident)")
	list := func(query string) (ids []int64, next int64) {
		var page struct {
			Incidents []struct {
				ID      int64
				Kind    string
				OrderNo string `json:"order_no"`
			}
			Next int64
		}
		require.NoError(t, s.ops.GetJSON(t.Context(), "/ops/incidents?"+query, nil, &page))
		for _, i := range page.Incidents {
			require.Equal(t, "refund_due", i.Kind)
			require.NoError(t, uuid.Validate(i.OrderNo))
			ids = append(ids, i.ID)
		}
		return ids, page.Next
	}
	all, _ := list("")
	require.Len(t, all, 3)
	open, _ := list("state=OPEN")
	require.Equal(t, all[1:], open)
	resolved, _ := list("state=RESOLVED")
	require.Equal(t, all[:1], resolved)
	first, next := list("limit=2")
	require.Equal(t, all[:2], first)
	rest, _ := list("after=" + fmt.Sprint(next))
	require.Equal(t, all[2:], rest)
	for _, bad := range []string{"state=open", "after=x", "limit=0"} {
		requireStatus(t, http.StatusBadRequest, s.ops.GetJSON(t.Context(), "/ops/incidents?"+bad, nil, nil))
	}
}

func TestServicesReadTheOrderThatThePublicSeesWithTheToken(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no := s.newOrder()
	var order json.RawMessage
	require.NoError(t, s.ops.GetJSON(t.Context(), "/ops/orders/"+no, nil, &order))
	require.JSONEq(t, string(send(t, "GET", s.url+"/orders/"+no, nil, nil).body), string(order))
	require.NotContains(t, string(order), phone)
	requireStatus(t, http.StatusNotFound, s.ops.GetJSON(t.Context(), "/ops/orders/"+uuid.NewString(), nil, nil))
	requireStatus(t, http.StatusNotFound, s.ops.GetJSON(t.Context(), "/ops/orders/%00", nil, nil))
	requireStatus(t, http.StatusUnauthorized, ops.Client{BaseURL: s.ops.BaseURL}.GetJSON(t.Context(), "/ops/orders/"+no, nil, nil))
}

func TestContactIsOnlyForWhoHasTheToken(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no := s.newOrder()
	path := "/ops/orders/" + no + "/contact"
	var contact map[string]string
	require.NoError(t, s.ops.GetJSON(t.Context(), path, nil, &contact))
	require.Equal(t, map[string]string{"phone": phone}, contact)
	requireStatus(t, http.StatusNotFound, s.ops.GetJSON(t.Context(), "/ops/orders/"+uuid.NewString()+"/contact", nil, nil))
	requireStatus(t, http.StatusNotFound, s.ops.GetJSON(t.Context(), "/ops/orders/%00/contact", nil, nil))
	for _, path := range []string{path, "/ops/facts", "/ops/incidents", "/ops/outbox"} {
		requireStatus(t, http.StatusUnauthorized, ops.Client{BaseURL: s.ops.BaseURL, Token: "guess"}.GetJSON(t.Context(), path, nil, nil))
		requireStatus(t, http.StatusUnauthorized, ops.Client{BaseURL: s.ops.BaseURL}.GetJSON(t.Context(), path, nil, nil))
		a := send(t, "GET", s.url+path, nil, nil)
		require.Equal(t, http.StatusNotFound, a.status, "the public listener knows no operations")
	}
	closed := newStack(t, service.Env{"OPS_TOKEN": ""})
	requireStatus(t, http.StatusForbidden, closed.ops.GetJSON(t.Context(), "/ops/facts", nil, nil))
}

func requireStatus(t *testing.T, status int, err error) {
	t.Helper()
	var answered *ops.StatusError
	require.ErrorAs(t, err, &answered)
	require.Equal(t, status, answered.Status)
}
