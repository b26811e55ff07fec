package search_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/paycast/services/search/internal/search"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/facts"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

// payment stands for the payment service: it has orders, lists them, and shows each one, to whom has the token.
type payment struct {
	url string

	mu     sync.Mutex
	orders map[string]event.Order
	asked  func() // before each page
	down   bool
	reads  int // of single orders, also while it is down
}

func (p *payment) set(orders ...event.Order) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range orders {
		p.orders[o.OrderNo] = o
	}
}

// onPage runs fn before each page of the list; nil ends that.
func (p *payment) onPage(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = fn
}

func (p *payment) setDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

func (p *payment) timesRead() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reads
}

func newPayment(t testing.TB) *payment {
	p := &payment{orders: map[string]event.Order{}}
	server := ops.NewServer(opsToken, prometheus.NewRegistry())
	server.Handle("GET /ops/facts", http.HandlerFunc(p.list))
	server.Handle("GET /ops/orders/{no}", http.HandlerFunc(p.show))
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	p.url = web.URL
	return p
}

func (p *payment) list(rw http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	asked := p.asked
	p.mu.Unlock()
	if asked != nil {
		asked()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	page := facts.SourcePage{}
	for _, no := range slices.Sorted(maps.Keys(p.orders)) {
		if no > r.URL.Query().Get("after") && len(page.Orders) < 2 { // small pages, so that there are some
			page.Orders = append(page.Orders, facts.Order{OrderNo: no})
		}
	}
	if len(page.Orders) == 2 {
		page.Next = page.Orders[1].OrderNo
	}
	ops.WriteJSON(rw, http.StatusOK, page)
}

func (p *payment) show(rw http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads++
	o, there := p.orders[r.PathValue("no")]
	switch {
	case p.down:
		ops.Problem(rw, http.StatusServiceUnavailable, "unavailable", "the database did not answer; see the log")
	case !there:
		ops.Problem(rw, http.StatusNotFound, "no-such-order", "there is no such order")
	default: // as payment shows it: more than the index has
		ops.WriteJSON(rw, http.StatusOK, map[string]any{
			"order_no": o.OrderNo, "user_id": o.UserID, "title": o.Title, "amount": o.Amount, "currency": o.Currency,
			"status": o.Status, "version": o.Version, "created_at": o.CreatedAt, "paid_at": o.PaidAt, "payment": nil, "incidents": []any{},
		})
	}
}

// elsewhere answers in payment's place, as the test says.
type elsewhere struct {
	w *world

	mu     sync.Mutex
	answer http.HandlerFunc
	asked  int
}

func (e *elsewhere) start() (url string) {
	e.answer = http.NotFound
	web := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		answer := e.answer
		e.asked++
		e.mu.Unlock()
		answer(rw, r)
	}))
	e.w.t.Cleanup(web.Close)
	return web.URL
}

// answersWith waits until the service has had this answer, and has come again.
func (e *elsewhere) answersWith(answer http.HandlerFunc) {
	e.w.t.Helper()
	e.mu.Lock()
	e.answer = answer
	before := e.asked
	e.mu.Unlock()
	testkit.Eventually(e.w.t, patience, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.asked < before+2 {
			return fmt.Errorf("asked %d times", e.asked-before)
		}
		return nil
	})
}

// attach lets `search` find it.
func (p *payment) attach(w *world) service.Env {
	env := maps.Clone(w.env)
	env["PAYMENT_OPS_URL"] = p.url
	return env
}

func TestALostIndexIsRebuiltFromPaymentsOrders(t *testing.T) {
	t.Parallel()
	w := serve(t)
	p := newPayment(t)
	env := p.attach(w)
	for n := range 5 {
		o := orderAt(fmt.Sprintf("o-%d", n), int64(n%3+1))
		p.set(o)
		w.send(o)
		w.eventually(o.OrderNo, o.Version, "applied")
	}
	before := w.facts("o-2")
	w.elastic("DELETE", "/orders-1", "")
	require.NoError(t, search.Rebuild(t.Context(), env))
	assert.Equal(t, before, w.facts("o-2"), "the documents are those that the events had made, to the byte")
	assert.EqualValues(t, 5, w.search(nil).Total, "and can be found at once")
	w.send(orderAt("o-2", 2))
	w.eventually("o-2", 2, "superseded")
	w.eventuallyReady()
}

func TestAnotherMappingIsReplacedByARebuildAndNotWrittenToBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newPayment(t)
	env := p.attach(w)
	p.set(orderAt("a", 2))
	w.elastic("DELETE", "/orders-1", "")
	w.elastic("PUT", "/orders-1", `{"mappings": {"dynamic": "strict", "properties": {"order_no": {"type": "text"}}}, "aliases": {"orders": {}}}`)
	require.ErrorContains(t, search.Migrate(t.Context(), w.env), "mapping of orders-1")
	w.start()
	w.send(orderAt("a", 2))
	w.eventuallyNotReady("the index is not as defined")
	require.NoError(t, search.Rebuild(t.Context(), env))
	w.eventually("a", 2, "applied")
	assert.EqualValues(t, 2, w.document("a").Version)
	w.eventuallyReady()
}

func TestEventsThatFlowDuringARebuildAreNotLost(t *testing.T) {
	t.Parallel()
	w := serve(t)
	p := newPayment(t)
	env := p.attach(w)
	asked := 0
	p.onPage(func() {
		asked++
		no := fmt.Sprintf("during-%02d", asked)
		p.set(orderAt(no, 1), orderAt("a", int64(min(asked, 3))))
		w.send(orderAt(no, 1), orderAt("a", int64(min(asked, 3))))
		w.eventually(no, 1, "applied") // in the index of the moment: the old one at first
		if asked > 20 {
			p.onPage(nil)
		}
	})
	require.NoError(t, search.Rebuild(t.Context(), env))
	require.Greater(t, asked, 2)
	w.refresh()
	p.onPage(nil)
	assert.EqualValues(t, len(p.orders), w.search(nil).Total)
	assert.EqualValues(t, 3, w.document("a").Version)
	assert.Equal(t, "CANCELED", w.facts("a")[3].Effect.State)
}

func TestOfTwoRebuildsAtOnceOneIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newPayment(t)
	env := p.attach(w)
	p.set(orderAt("a", 1))
	var second error
	p.onPage(func() {
		p.onPage(nil)
		second = search.Rebuild(t.Context(), env)
	})
	require.NoError(t, search.Rebuild(t.Context(), env))
	require.ErrorContains(t, second, "another rebuild is running")
	assert.True(t, w.document("a").Found)
}

func TestARebuildThatCannotReadItsSourceChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newPayment(t)
	env := p.attach(w)
	p.set(orderAt("a", 1))
	p.setDown(true)
	require.ErrorContains(t, search.Rebuild(t.Context(), env), "reading order a")
	var aliases map[string]any
	_, body := w.elastic("GET", "/orders/_alias", "")
	require.NoError(t, json.Unmarshal(body, &aliases))
	assert.Contains(t, aliases, "orders-1")
}

func TestFiveMigrationsAtOnceMakeOneIndex(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.elastic("DELETE", "/orders-1", "")
	group, ctx := errgroup.WithContext(t.Context())
	for range 5 {
		group.Go(func() error { return search.Migrate(ctx, w.env) })
	}
	require.NoError(t, group.Wait())
	status, body := w.elastic("GET", "/orders/_mapping", "")
	require.Equal(t, 200, status)
	var found map[string]any
	require.NoError(t, json.Unmarshal(body, &found))
	assert.Len(t, found, 1)
}

func TestWhatIsMissingInTheEnvironmentIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(context.Context, service.Env) error{
		"serve": search.Serve, "migrate": search.Migrate, "rebuild": search.Rebuild,
	} {
		err := run(t.Context(), service.Env{})
		require.ErrorContains(t, err, "DATABASE_URL", name)
		require.ErrorContains(t, err, "ELASTICSEARCH_URL", name)
	}
}
