package notify_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/deploy/world/sms"
	"example.com/paycast/services/notify/internal/notify"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/openapitest"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

const (
	opsToken = "an-ops-token-of-this-test"
	phone    = "+441632960007"

	soon = 90 * time.Second // bound of everything that must happen, for a very busy machine
)

func TestMain(m *testing.M) { testkit.Main(m) }

// stack is what surrounds the two processes: the database, the SMS provider, and payment's contact API.
type stack struct {
	t        *testing.T
	db       *pgxpool.Pool // the test's own view
	env      service.Env
	provider *sms.Provider

	mu      sync.Mutex
	posts   []post
	contact http.HandlerFunc
	held    chan struct{} // while it is there, no POST reaches the provider
}

// post is one POST /sms as it reached the provider.
type post struct {
	at  time.Time
	key string
}

func newStack(t *testing.T) *stack {
	t.Helper()
	s := &stack{t: t}
	dbURL := testkit.Postgres(t, notify.Migrations...)
	var err error
	s.db, err = pgxpool.New(t.Context(), dbURL)
	require.NoError(t, err)
	t.Cleanup(s.db.Close)
	s.provider, err = sms.Open("")
	require.NoError(t, err)
	provider := httptest.NewServer(http.HandlerFunc(s.record))
	payment := httptest.NewServer(http.HandlerFunc(s.contacts))
	t.Cleanup(func() {
		for _, server := range []*httptest.Server{provider, payment} {
			server.CloseClientConnections()
			server.Close()
		}
		require.NoError(t, s.provider.Close())
	})
	s.env = service.Env{
		"DATABASE_URL": dbURL, "OPS_TOKEN": opsToken, "LOG_LEVEL": "error", "SMS_URL": provider.URL, "PAYMENT_OPS_URL": payment.URL,
		"SMS_RATE": "1000", "SMS_BURST": "100", "SMS_POLL": "20ms", "SMS_RETRY_BASE": "50ms", "SMS_RETRY_CAP": "200ms",
		// An answer in time is within reach of a slow machine, and the end of a lease is not: where one has to run out, the
		// test lets it.
		"SMS_TIMEOUT": "3s", "SMS_LEASE": "5m",
	}
	return s
}

func (s *stack) record(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		s.mu.Lock()
		s.posts = append(s.posts, post{time.Now(), r.Header.Get("Idempotency-Key")})
		held := s.held
		s.mu.Unlock()
		if held != nil {
			<-held
		}
	}
	s.provider.ServeHTTP(w, r)
}

// sent is every POST /sms so far, also those that were refused.
func (s *stack) sent() []post {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.posts)
}

// contacts is payment's answer; a test may put another in its place.
func (s *stack) contacts(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	other := s.contact
	s.mu.Unlock()
	switch {
	case other != nil:
		other(w, r)
	case r.Header.Get("Authorization") != "Bearer "+opsToken:
		ops.Problem(w, http.StatusUnauthorized, "unauthorized", "")
	case !strings.HasPrefix(r.URL.Path, "/ops/orders/") || !strings.HasSuffix(r.URL.Path, "/contact"):
		ops.Problem(w, http.StatusNotFound, "not-found", "")
	default:
		ops.WriteJSON(w, http.StatusOK, map[string]string{"phone": phone})
	}
}

func (s *stack) setContact(h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contact = h
}

// hold lets every POST wait before it reaches the provider, until let go.
func (s *stack) hold() (letGo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.held = held
	letGo = sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held = nil
		close(held)
	})
	s.t.Cleanup(letGo)
	return letGo
}

func (s *stack) mode(m sms.Mode) {
	s.t.Helper()
	require.NoError(s.t, s.provider.SetMode(m))
}

// process is one running subcommand.
type process struct {
	url  string
	ops  ops.Client
	stop func() // as SIGTERM does, and waits for a clean end
}

// start runs a subcommand in this process until the test ends, and waits until it is ready.
func (s *stack) start(run func(context.Context, service.Env) error, more service.Env) process {
	s.t.Helper()
	env := maps.Clone(s.env)
	maps.Copy(env, more)
	env["HTTP_ADDR"], env["OPS_ADDR"] = testkit.FreeAddr(s.t), testkit.FreeAddr(s.t)
	task := testkit.Run(s.t, "the process", func(ctx context.Context) error { return run(ctx, env) })
	p := process{url: "http://" + env["HTTP_ADDR"], ops: ops.Client{BaseURL: "http://" + env["OPS_ADDR"], Token: opsToken}}
	p.stop = func() {
		s.t.Helper()
		require.NoError(s.t, task.Stop())
	}
	require.Eventually(s.t, p.ready, soon, 20*time.Millisecond, "not ready")
	return p
}

func (p process) ready() bool {
	resp, err := http.Get(p.ops.BaseURL + "/readyz")
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // nothing of it is wanted
	return resp.StatusCode == http.StatusOK
}

func (s *stack) sender(more service.Env) process {
	s.t.Helper()
	return s.start(notify.Send, more)
}

// child is a sender in a process of its own, from the real program.
type child struct {
	*testkit.Process
	process
}

func (s *stack) child(more service.Env) child {
	s.t.Helper()
	env := maps.Clone(s.env)
	env["OPS_ADDR"], env["LOG_LEVEL"] = testkit.FreeAddr(s.t), "debug"
	maps.Copy(env, more)
	c := child{testkit.Exec(s.t, "../..", env, "send"), process{ops: ops.Client{BaseURL: "http://" + env["OPS_ADDR"], Token: opsToken}}}
	c.WaitReady(env["OPS_ADDR"], soon)
	return c
}

// insert makes n commands as the consumer would, each for an order of its own, and returns their ids.
func (s *stack) insert(n int) (ids []string) {
	s.t.Helper()
	for range n {
		id := uuid.NewString()
		_, err := s.db.Exec(s.t.Context(), `INSERT INTO t_notification_command (command_id, event_id, order_no, kind, text)
			VALUES ($1, $2, $3, 'PAID', 'paid')`, id, uuid.NewString(), uuid.NewString())
		require.NoError(s.t, err)
		ids = append(ids, id)
	}
	return ids
}

// row is a command as it stands.
type row struct {
	Status              string
	Attempts, Takeovers int
	Code                string
}

func (s *stack) row(id string) (r row) {
	s.t.Helper()
	err := s.db.QueryRow(s.t.Context(), `SELECT status, attempts, takeover_count, coalesce(last_error_code, '')
		FROM t_notification_command WHERE command_id = $1`, id).Scan(&r.Status, &r.Attempts, &r.Takeovers, &r.Code)
	require.NoError(s.t, err)
	return r
}

func (s *stack) await(id, status string) row {
	s.t.Helper()
	var r row
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		r = s.row(id)
		assert.Equal(c, status, r.Status, "%+v", r)
	}, soon, 10*time.Millisecond)
	return r
}

// count is how many commands have the status.
func (s *stack) count(status string) (n int) {
	s.t.Helper()
	err := s.db.QueryRow(s.t.Context(), `SELECT count(*) FROM t_notification_command WHERE status = $1`, status).Scan(&n)
	require.NoError(s.t, err)
	return n
}

func (s *stack) awaitCount(status string, n int) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		assert.Equal(c, n, s.count(status), status)
	}, soon, 20*time.Millisecond)
}

// oneMessageEach demands that the provider has accepted exactly one message for each command.
func (s *stack) oneMessageEach(ids ...string) {
	s.t.Helper()
	var keys []string
	for _, m := range s.provider.Messages() {
		keys = append(keys, m.Key)
		require.Equal(s.t, phone, m.To)
	}
	require.ElementsMatch(s.t, ids, keys)
}

// consumer adds Kafka to the stack and starts the consumer.
func (s *stack) consumer() (process, *testkit.Broker) {
	s.t.Helper()
	b := testkit.Kafka(s.t, event.Topic, event.RedeliveryTopic("notify"))
	s.env["KAFKA_BROKERS"] = b.Brokers()
	return s.start(notify.Serve, nil), b
}

// fact is an event of an order, as payment makes it.
func fact(t *testing.T, eventType, orderNo string, version int64, status, previous string) event.Event {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Microsecond)
	o := event.Order{
		OrderNo: orderNo, UserID: "u-1", Title: "A blue lamp", Amount: 1999, Currency: "EUR", Status: status, Version: version,
		PreviousStatus: previous, CreatedAt: now, OccurredAt: now,
	}
	payload, err := json.Marshal(o)
	require.NoError(t, err)
	return event.Event{
		ID: event.NewID(eventType, orderNo, "cause"), Type: eventType, Version: event.CurrentVersion, Source: "/paycast/payment",
		AggregateType: event.AggregateOrder, AggregateID: orderNo, AggregateVersion: version, Time: now, Payload: payload,
	}
}

func paid(t *testing.T, orderNo string) event.Event {
	return fact(t, event.PaymentSucceeded, orderNo, 2, event.StatusPaid, event.StatusCreated)
}

func produce(t *testing.T, b *testkit.Broker, events ...event.Event) {
	t.Helper()
	records := make([]event.Record, len(events))
	for i, e := range events {
		records[i] = event.Record{Key: []byte(e.AggregateID), Value: e.Payload, Headers: e.Headers()}
	}
	testkit.Produce(t, b.Brokers(), event.Topic, records...)
}

type notification struct {
	CommandID         string  `json:"command_id"`
	EventID           string  `json:"event_id"`
	OrderNo           string  `json:"order_no"`
	Kind              string  `json:"kind"`
	Status            string  `json:"status"`
	ProviderMessageID *string `json:"provider_message_id"`
}

// get asks the API and holds the answer against openapi.yaml.
func get(t *testing.T, url string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, openapitest.Check("../../openapi.yaml", req, resp.StatusCode, resp.Header, body))
	return resp.StatusCode, body
}

func (p process) notifications(t *testing.T, orderNo string) []notification {
	t.Helper()
	status, body := get(t, p.url+"/notifications?order_no="+orderNo)
	require.Equal(t, http.StatusOK, status, "%s", body)
	var page struct{ Notifications []notification }
	require.NoError(t, json.Unmarshal(body, &page))
	return page.Notifications
}

// leaseRunsOut lets time pass for what is claimed.
func (s *stack) leaseRunsOut() {
	s.t.Helper()
	_, err := s.db.Exec(s.t.Context(), "UPDATE t_notification_command SET lease_until = now() - interval '1 second' WHERE status = 'SENDING'")
	require.NoError(s.t, err)
}

// awaitTried waits until a first try at the command has come to an end.
func (s *stack) awaitTried(id string) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		r := s.row(id)
		assert.Positive(c, r.Attempts)
		assert.NotEqual(c, "SENDING", r.Status)
	}, soon, 10*time.Millisecond)
}

// awaitSent waits until the order has n messages and all of them are sent.
func (p process) awaitSent(t *testing.T, orderNo string, n int) []notification {
	t.Helper()
	var all []notification
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		all = p.notifications(t, orderNo)
		assert.Len(c, all, n)
		for _, one := range all {
			assert.Equal(c, "SENT", one.Status)
		}
	}, soon, 20*time.Millisecond)
	return all
}

// metric reads one series from a process.
func (p process) metric(t *testing.T, series string) float64 {
	t.Helper()
	resp, err := http.Get(p.ops.BaseURL + "/metrics")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			var v float64
			_, err := fmt.Sscan(value, &v)
			require.NoError(t, err)
			return v
		}
	}
	t.Fatalf("no series %s", series)
	return 0
}
