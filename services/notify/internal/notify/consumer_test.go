package notify_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/services/notify/internal/notify"
	"example.com/paycast/shared/archive"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/facts"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/postgres"
)

func TestOnePaymentIsOneMessage(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	p, broker := s.consumer()
	s.sender(nil)
	no := uuid.NewString()
	produce(t, broker, fact(t, event.OrderCreated, no, 1, event.StatusCreated, ""), paid(t, no))

	got := p.awaitSent(t, no, 1)[0]
	require.Equal(t, "PAID", got.Kind)
	require.Equal(t, paid(t, no).ID, got.EventID)
	s.oneMessageEach(got.CommandID)
	m := s.provider.Messages()[0]
	require.Equal(t, m.MessageID, *got.ProviderMessageID)
	require.Contains(t, m.Text, no)
}

func TestFiftyDeliveriesOfOnePaymentAreOneMessage(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	p, broker := s.consumer()
	s.sender(nil)
	s.sender(nil)
	no, last := uuid.NewString(), uuid.NewString()
	e := paid(t, no)
	for range 50 {
		produce(t, broker, e)
	}
	produce(t, broker, paid(t, last))
	p.awaitSent(t, last, 1)
	one := p.awaitSent(t, no, 1)[0]
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.GreaterOrEqual(c, p.metric(t, `consumer_dedup_hits_total{group="notify"}`), float64(49)) // a rebalance adds more
	}, soon, 20*time.Millisecond, "all fifty were delivered")
	s.oneMessageEach(one.CommandID, p.awaitSent(t, last, 1)[0].CommandID)
	require.Len(t, s.sent(), 2)
}

func TestOnlyThePaymentAndTheCancellationOfAPaidOrderAreTold(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	p, broker := s.consumer()
	s.sender(nil)
	paidOrder, unpaid, closed := uuid.NewString(), uuid.NewString(), uuid.NewString()
	produce(t, broker,
		fact(t, event.OrderCreated, paidOrder, 1, event.StatusCreated, ""), paid(t, paidOrder),
		fact(t, event.OrderCanceled, paidOrder, 3, event.StatusCanceled, event.StatusPaid),
		fact(t, event.OrderCreated, unpaid, 1, event.StatusCreated, ""),
		fact(t, event.OrderCanceled, unpaid, 2, event.StatusCanceled, event.StatusCreated),
		fact(t, event.OrderCreated, closed, 1, event.StatusCreated, ""),
		fact(t, event.OrderClosed, closed, 2, event.StatusClosed, event.StatusCreated),
	)
	all := p.awaitSent(t, paidOrder, 2)
	require.Equal(t, "PAID", all[0].Kind)
	require.Equal(t, "CANCELED", all[1].Kind)

	outcomes := map[string]int{}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		clear(outcomes)
		var page facts.GroupPage
		if !assert.NoError(c, p.ops.GetJSON(t.Context(), "/ops/facts", nil, &page)) {
			return
		}
		for _, f := range page.Facts {
			outcomes[f.EventType+" "+f.Outcome]++
		}
		assert.Len(c, page.Facts, 7)
	}, soon, 20*time.Millisecond)
	require.Equal(t, map[string]int{
		"OrderCreated ignored": 3, "OrderClosed ignored": 1, "PaymentSucceeded applied": 1, "OrderCanceled applied": 1, "OrderCanceled ignored": 1,
	}, outcomes)
	s.oneMessageEach(all[0].CommandID, all[1].CommandID)
}

// The key follows from the event: a command that is made again after its row was lost is the same message.
func TestCommandThatIsMadeAgainAfterALossIsNotSentAgain(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	p, broker := s.consumer()
	s.sender(nil)
	no := uuid.NewString()
	produce(t, broker, paid(t, no))
	before := p.awaitSent(t, no, 1)
	_, err := s.db.Exec(t.Context(), "TRUNCATE t_notification_command, t_message_consume CASCADE")
	require.NoError(t, err)
	produce(t, broker, paid(t, no))
	require.Equal(t, before, p.awaitSent(t, no, 1))
	s.oneMessageEach(before[0].CommandID)
}

func TestFactsShowTheCommandAndWhatNoEventStandsBehind(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	p, broker := s.consumer()
	no := uuid.NewString()
	produce(t, broker, paid(t, no))
	require.Eventually(t, func() bool { return len(p.notifications(t, no)) == 1 }, soon, 20*time.Millisecond)
	stray := s.insert(1)[0]

	var page facts.GroupPage
	require.NoError(t, p.ops.GetJSON(t.Context(), "/ops/facts", nil, &page))
	require.Equal(t, "notify", page.Group)
	require.Len(t, page.Facts, 1)
	command := p.notifications(t, no)[0]
	require.Equal(t, &facts.Effect{Kind: "PAID", Ref: command.CommandID, State: "PENDING", Copies: 1}, page.Facts[0].Effect)
	require.Len(t, page.Faults, 1)
	require.Equal(t, stray, page.Faults[0].Ref)
}

func TestCommandThatIsNotWhatItsEventMadeIsAFault(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	p, broker := s.consumer()
	const altered, redirected, reworded, old, archived = "altered", "redirected", "reworded", "old", "archived"
	orders := []string{altered, redirected, reworded, old, archived, "whole"}
	commands := map[string]notification{}
	for _, no := range orders {
		produce(t, broker, paid(t, no))
	}
	for _, no := range orders {
		require.Eventually(t, func() bool { return len(p.notifications(t, no)) == 1 }, soon, 20*time.Millisecond)
		commands[no] = p.notifications(t, no)[0]
	}
	byHand := func(statement, no string) {
		t.Helper()
		_, err := s.db.Exec(t.Context(), statement, no)
		require.NoError(t, err)
	}
	byHand("UPDATE t_notification_command SET text = text || '!' WHERE order_no = $1", altered)
	byHand("UPDATE t_notification_command SET order_no = 'elsewhere' WHERE order_no = $1", redirected)
	// What an earlier release has left behind is no damage.
	byHand("UPDATE t_notification_command SET text = 'paid', text_digest = sha256('paid') WHERE order_no = $1", reworded)
	byHand("UPDATE t_notification_command SET text = 'paid', text_digest = NULL WHERE order_no = $1", old)
	byHand(`UPDATE t_message_consume SET first_received_at = now() - interval '2 hours', updated_at = now() - interval '2 hours'
		WHERE aggregate_id = $1`, archived)
	db, err := postgres.Open(t.Context(), s.env["DATABASE_URL"], "test")
	require.NoError(t, err)
	t.Cleanup(func() { postgres.Close(db) })
	moved, err := inbox.Archive(t.Context(), db, notify.Group, archive.Retention{Window: time.Hour, Kafka: time.Hour, Replay: time.Hour})
	require.NoError(t, err)
	require.Equal(t, 1, moved)

	var page facts.GroupPage
	require.NoError(t, p.ops.GetJSON(t.Context(), "/ops/facts", nil, &page))
	require.Len(t, page.Facts, len(orders))
	require.ElementsMatch(t, []facts.Fault{
		{Ref: commands[altered].CommandID, OrderNo: altered, EventID: commands[altered].EventID, Detail: "the text is not the one that was written"},
		{Ref: commands[redirected].CommandID, OrderNo: "elsewhere", EventID: commands[redirected].EventID, Detail: "a command without an applied event of its order"},
	}, page.Faults)
}

func TestAPIRefusesWhatCannotBeAnOrder(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	p, _ := s.consumer()
	for _, query := range []string{"", "?order_no=", "?order_no=a%00b", "?order_no=%ff"} {
		status, body := get(t, p.url+"/notifications"+query)
		require.Equal(t, http.StatusBadRequest, status, "%s", body)
	}
	require.Empty(t, p.notifications(t, "unknown"))
	for path, want := range map[string]int{"/": http.StatusNotFound, "/notifications/x": http.StatusNotFound} {
		resp, err := http.Get(p.url + path)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, resp.StatusCode)
	}
}

func TestCommandsAreListedByStatusForOperatorsOnly(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	p, _ := s.consumer()
	ids := s.insert(3)
	type page struct {
		Commands []notification
		Next     string
	}
	list := func(q url.Values) (all page) {
		require.NoError(t, p.ops.GetJSON(t.Context(), "/ops/commands", q, &all))
		return all
	}
	require.Len(t, list(url.Values{"status": {"PENDING"}}).Commands, 3)
	require.Empty(t, list(url.Values{"status": {"SENT"}}).Commands)
	first := list(url.Values{"limit": {"2"}})
	require.Len(t, first.Commands, 2)
	rest := list(url.Values{"limit": {"2"}, "after": {first.Next}})
	require.Len(t, rest.Commands, 1)
	require.ElementsMatch(t, ids, []string{first.Commands[0].CommandID, first.Commands[1].CommandID, rest.Commands[0].CommandID})
	require.Len(t, list(url.Values{"order_no": {rest.Commands[0].OrderNo}}).Commands, 1)

	for _, bad := range []string{"status=LOST", "limit=0", "limit=many", "order_no=%00"} {
		q, err := url.ParseQuery(bad)
		require.NoError(t, err)
		require.ErrorContains(t, p.ops.GetJSON(t.Context(), "/ops/commands", q, nil), "400", bad)
	}
	p.ops.Token = ""
	require.ErrorContains(t, p.ops.GetJSON(t.Context(), "/ops/commands", nil, nil), "401")
}
