package search_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/services/search/internal/search"
	"example.com/paycast/shared/elastic/elastictest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/facts"
	"example.com/paycast/shared/openapitest"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

const (
	opsToken = "an-ops-token-of-this-test"
	patience = 90 * time.Second // of a very busy machine; nothing waits for its end
)

func TestMain(m *testing.M) { testkit.Main(m) }

// world is the search service as it runs in production, with a database, a broker and an index of its own.
type world struct {
	t      testing.TB
	env    service.Env
	broker *testkit.Broker
	es     *elastictest.Server
	esURL  string
	db     *gorm.DB // the test's own view
	ops    ops.Client
	task   *testkit.Task
}

// newWorld is a world in which `search migrate` has been run, and nothing else.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, broker: testkit.Kafka(t, event.Topic, event.RedeliveryTopic(search.Group))}
	w.es, w.esURL = elastictest.Start(t)
	dbURL := testkit.Postgres(t, search.Migrations...)
	var err error
	w.db, err = postgres.Open(t.Context(), dbURL, "test")
	require.NoError(t, err)
	t.Cleanup(func() { postgres.Close(w.db) })
	w.env = service.Env{
		"DATABASE_URL": dbURL, "ELASTICSEARCH_URL": versioned(t, w.esURL), "KAFKA_BROKERS": w.broker.Brokers(), "OPS_TOKEN": opsToken,
		"LOG_LEVEL":        "error",
		"CONSUMER_BACKOFF": "50ms", "CONSUMER_MAX_BACKOFF": "500ms", "CONSUMER_RETRY_POLL": "50ms",
		// No test is about a slow handler, and a slow machine must not make one.
		"CONSUMER_HANDLER_TIMEOUT": "2m", "CONSUMER_LEASE": "3m",
	}
	w.ops = ops.Client{Token: opsToken}
	require.NoError(t, search.Migrate(t.Context(), w.env))
	return w
}

// serve runs `search serve` and waits until it is ready.
func serve(t testing.TB) *world {
	t.Helper()
	w := newWorld(t)
	w.start()
	w.eventuallyReady()
	return w
}

// start gives the service new addresses each time: a child that another test starts may keep a closed one a moment longer.
func (w *world) start() {
	w.env["HTTP_ADDR"], w.env["OPS_ADDR"] = testkit.FreeAddr(w.t), testkit.FreeAddr(w.t)
	w.ops.BaseURL = "http://" + w.env["OPS_ADDR"]
	env := maps.Clone(w.env)
	w.task = testkit.Run(w.t, "search serve", func(ctx context.Context) error { return search.Serve(ctx, env) })
}

func (w *world) eventuallyReady() {
	w.t.Helper()
	testkit.Eventually(w.t, patience, func() error { return w.ops.GetJSON(w.t.Context(), "/readyz", nil, nil) })
}

// eventuallyNotReady waits until readiness says why.
func (w *world) eventuallyNotReady(why string) {
	w.t.Helper()
	testkit.Eventually(w.t, patience, func() error {
		resp, err := http.Get(w.ops.BaseURL + "/readyz")
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err == nil && (resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), why)) {
			err = fmt.Errorf("%d %s", resp.StatusCode, body)
		}
		return err
	})
}

// at is when order number n of a test was made: the higher, the newer.
func at(n int) time.Time {
	return time.Date(2026, 11, 29, 20, 0, n, 123456000, time.UTC)
}

// orderAt is an order as of a version: 1 created, 2 paid, 3 cancelled.
func orderAt(no string, version int64) event.Order {
	paid := at(100)
	o := event.Order{
		OrderNo: no, UserID: "u-1", Title: "A blue lamp", Amount: 1999, Currency: "EUR", Status: event.StatusCreated,
		Version: version, CreatedAt: at(0), OccurredAt: at(int(version)),
	}
	if version >= 2 {
		o.Status, o.PaidAt, o.TradeNo = event.StatusPaid, &paid, "t-"+no
	}
	if version >= 3 {
		o.Status = event.StatusCanceled
	}
	return o
}

// contents are the order as payment shows it.
func contents(o event.Order) facts.Contents {
	return facts.Contents{
		OrderNo: o.OrderNo, UserID: o.UserID, Title: o.Title, Amount: o.Amount, Currency: o.Currency,
		Status: o.Status, Version: o.Version, CreatedAt: o.CreatedAt, PaidAt: o.PaidAt,
	}
}

// documentAsOf is what reconciliation must be told of a document that is the order.
func documentAsOf(o event.Order) *facts.Effect {
	return &facts.Effect{Kind: "DOCUMENT", Ref: o.OrderNo, Version: o.Version, Digest: contents(o).Digest(), State: o.Status, Copies: 1}
}

// record is the order's event of that version, as it stands on the topic.
func (w *world) record(o event.Order) event.Record {
	w.t.Helper()
	kind := map[string]string{
		event.StatusCreated: event.OrderCreated, event.StatusPaid: event.PaymentSucceeded,
		event.StatusCanceled: event.OrderCanceled, event.StatusClosed: event.OrderClosed,
	}[o.Status]
	payload, err := json.Marshal(o)
	require.NoError(w.t, err)
	e := event.Event{
		ID: event.NewID(kind, o.OrderNo, fmt.Sprint(o.Version)), Type: kind, Version: event.CurrentVersion, Source: "/payment",
		AggregateType: event.AggregateOrder, AggregateID: o.OrderNo, AggregateVersion: o.Version, Time: o.OccurredAt, Payload: payload,
	}
	return event.Record{Key: []byte(o.OrderNo), Value: payload, Headers: e.Headers()}
}

func (w *world) send(orders ...event.Order) {
	w.t.Helper()
	var records []event.Record
	for _, o := range orders {
		records = append(records, w.record(o))
	}
	testkit.Produce(w.t, w.broker.Brokers(), event.Topic, records...)
}

// facts are what reconciliation sees of an order, by version.
func (w *world) facts(orderNo string) map[int64]facts.Fact {
	w.t.Helper()
	var page facts.GroupPage
	require.NoError(w.t, w.ops.GetJSON(w.t.Context(), "/ops/facts", nil, &page))
	byVersion := map[int64]facts.Fact{}
	for _, f := range page.Facts {
		if f.OrderNo == orderNo {
			byVersion[f.Version] = f
		}
	}
	return byVersion
}

// eventually waits until the event of that version has an outcome in the consume log.
func (w *world) eventually(orderNo string, version int64, outcome string) {
	w.t.Helper()
	testkit.Eventually(w.t, patience, func() error {
		var have string
		err := w.db.Raw("SELECT status || ' ' || coalesce(outcome, '') FROM t_message_consume WHERE aggregate_id = ? AND aggregate_version = ?", orderNo, version).
			Scan(&have).Error
		if err == nil && have != "SUCCESS "+outcome {
			err = fmt.Errorf("order %s v%d is %q", orderNo, version, have)
		}
		return err
	})
}

// wanted is nil when have is want.
func wanted(want, have int64) error {
	if want != have {
		return fmt.Errorf("%d instead of %d", have, want)
	}
	return nil
}

func (w *world) count(query string) (n int64) {
	w.t.Helper()
	require.NoError(w.t, w.db.Raw(query).Scan(&n).Error)
	return n
}

// document is what Elasticsearch itself holds.
type document struct {
	Found   bool           `json:"found"`
	Version int64          `json:"_version"`
	Source  map[string]any `json:"_source"`
}

func (w *world) document(orderNo string) (d document) {
	w.t.Helper()
	_, body := w.elastic("GET", "/orders/_doc/"+orderNo, "")
	require.NoError(w.t, json.Unmarshal(body, &d))
	return d
}

// elastic goes past the service, and past versioned.
func (w *world) elastic(method, path, body string) (int, []byte) {
	w.t.Helper()
	return w.do(method, w.esURL+path, body)
}

func (w *world) do(method, target, body string) (int, []byte) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, target, strings.NewReader(body))
	require.NoError(w.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	return resp.StatusCode, text
}

// writes are the attempts to write an order's document, each by its status.
func (w *world) writes(orderNo string) (statuses []int) {
	for _, r := range w.es.Requests() {
		for _, write := range r.Writes {
			if write.ID == orderNo {
				statuses = append(statuses, write.Status)
			}
		}
	}
	return statuses
}

// page is the answer of GET /orders.
type page struct {
	Orders []map[string]any `json:"orders"`
	Total  int64            `json:"total"`
	Next   string           `json:"next"`
}

func (p page) numbers() (numbers []string) {
	for _, o := range p.Orders {
		numbers = append(numbers, o["order_no"].(string))
	}
	return numbers
}

// get asks the API, and holds its answer against openapi.yaml.
func (w *world) get(query url.Values) (int, []byte) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+w.env["HTTP_ADDR"]+"/orders?"+query.Encode(), nil)
	require.NoError(w.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	require.NoError(w.t, openapitest.Check("../../openapi.yaml", req, resp.StatusCode, resp.Header, body))
	return resp.StatusCode, body
}

func (w *world) search(query url.Values) (p page) {
	w.t.Helper()
	status, body := w.get(query)
	require.Equal(w.t, http.StatusOK, status, "%s", body)
	require.NoError(w.t, json.Unmarshal(body, &p))
	return p
}

func (w *world) refresh() {
	w.t.Helper()
	status, body := w.elastic("POST", "/orders/_refresh", "")
	require.Equal(w.t, http.StatusOK, status, "%s", body)
}
