package payment_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/paycast/services/payment/internal/payment"
	"example.com/paycast/shared/openapitest"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
	"example.com/paycast/shared/webhook"
)

const (
	merchant = "merchant-1"
	opsToken = "an-ops-token-of-this-test"
	phone    = "+441632960001"

	soon = 2 * time.Minute // more than anything here takes on a slow machine
)

var success = []byte(`{"result":"success"}`)

func TestMain(m *testing.M) { testkit.Main(m) }

// stack is a payment API as it runs in production, on a database of its own.
type stack struct {
	t       testing.TB
	dbURL   string
	db      *pgxpool.Pool // the test's own view, past the API
	env     service.Env
	url     string
	ops     ops.Client
	secrets webhook.Secrets
}

func newStack(t testing.TB, env ...service.Env) *stack {
	t.Helper()
	s := &stack{t: t, dbURL: testkit.Postgres(t, payment.Migrations...)}
	var err error
	s.db, err = pgxpool.New(t.Context(), s.dbURL)
	require.NoError(t, err)
	t.Cleanup(s.db.Close)
	secret := webhook.NewSecret()
	s.secrets, err = webhook.ParseSecrets(secret)
	require.NoError(t, err)
	s.env = service.Env{
		"DATABASE_URL": s.dbURL, "WEBHOOK_SECRETS": secret, "MERCHANT_ID": merchant, "OPS_TOKEN": opsToken, "LOG_LEVEL": "error",
	}
	for _, more := range env {
		maps.Copy(s.env, more)
	}
	s.url, s.ops = s.start(payment.API)
	return s
}

// start runs a subcommand until the test ends and waits until it is ready.
func (s *stack) start(run func(context.Context, service.Env) error) (url string, client ops.Client) {
	s.t.Helper()
	env := maps.Clone(s.env)
	env["HTTP_ADDR"], env["OPS_ADDR"] = testkit.FreeAddr(s.t), testkit.FreeAddr(s.t)
	testkit.Run(s.t, "payment", func(ctx context.Context) error { return run(ctx, env) })
	client = ops.Client{BaseURL: "http://" + env["OPS_ADDR"], Token: opsToken}
	testkit.Eventually(s.t, soon, func() error { return client.GetJSON(s.t.Context(), "/readyz", nil, nil) })
	return "http://" + env["HTTP_ADDR"], client
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

// send holds every answer against openapi.yaml.
func send(t testing.TB, method, url string, header http.Header, body []byte) answer {
	t.Helper()
	a, err := trySend(method, url, header, body)
	require.NoError(t, err)
	return a
}

func trySend(method, url string, header http.Header, body []byte) (answer, error) {
	req, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if header != nil {
		req.Header = header
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		return answer{}, err
	}
	return a, openapitest.Check("../../openapi.yaml", req, a.status, a.header, a.body)
}

var client = &http.Client{Timeout: soon}

// orderBody is a good order as a map, so that a test can spoil one field.
func orderBody() map[string]any {
	return map[string]any{"user_id": "u-1", "phone": phone, "title": "A blue lamp", "amount": 1999, "currency": "EUR"}
}

type order struct {
	OrderNo   string         `json:"order_no"`
	Status    string         `json:"status"`
	Version   int64          `json:"version"`
	PaidAt    *time.Time     `json:"paid_at"`
	Payment   map[string]any `json:"payment"`
	Incidents []struct {
		Kind, Expected, Received, State string
		TradeNo                         string `json:"trade_no"`
	} `json:"incidents"`
}

func (s *stack) create(key string, body map[string]any) answer {
	s.t.Helper()
	return send(s.t, "POST", s.url+"/orders", http.Header{
		"Content-Type": {"application/json"}, "Idempotency-Key": {key},
	}, encode(s.t, body))
}

// newOrder makes an order and returns its number.
func (s *stack) newOrder() string {
	s.t.Helper()
	a := s.create(uuid.NewString(), orderBody())
	require.Equal(s.t, http.StatusCreated, a.status, "%s", a.body)
	return decode[order](s.t, a.body).OrderNo
}

func (s *stack) get(no string) order {
	s.t.Helper()
	a := send(s.t, "GET", s.url+"/orders/"+no, nil, nil)
	require.Equal(s.t, http.StatusOK, a.status, "%s", a.body)
	return decode[order](s.t, a.body)
}

func (s *stack) cancel(no string) answer {
	s.t.Helper()
	return send(s.t, "POST", s.url+"/orders/"+no+"/cancel", nil, nil)
}

// notice is a callback's body.
func notice(kind, no, trade string, spoil ...func(data map[string]any)) map[string]any {
	data := map[string]any{
		"merchant_id": merchant, "trade_no": trade, "order_no": no, "amount": 1999, "currency": "EUR", "paid_at": "2026-05-04T03:02:01.123456Z",
	}
	for _, f := range spoil {
		f(data)
	}
	return map[string]any{"type": kind, "timestamp": "2026-05-04T03:02:02Z", "data": data}
}

// signed are the headers with which the provider sends body.
func (s *stack) signed(id string, body []byte) http.Header {
	s.t.Helper()
	h := http.Header{"Content-Type": {"application/json"}}
	require.NoError(s.t, s.secrets.Sign(h, id, time.Now(), body))
	return h
}

func (s *stack) callback(id string, body []byte) answer {
	s.t.Helper()
	return send(s.t, "POST", s.url+"/callbacks/payment", s.signed(id, body), body)
}

// pay sends one success and demands the provider's answer.
func (s *stack) pay(no, trade string) {
	s.t.Helper()
	a := s.callback(uuid.NewString(), encode(s.t, notice("payment.succeeded", no, trade)))
	require.Equal(s.t, http.StatusOK, a.status, "%s", a.body)
	require.Equal(s.t, success, a.body)
}

// tables is all that the service has stored, row for row, so that "nothing changed" can be said of everything.
func (s *stack) tables() map[string][]string {
	s.t.Helper()
	all := map[string][]string{}
	for _, table := range []string{"t_order", "t_payment", "t_callback_receipt", "t_incident", "t_idempotency_key", "t_outbox_event"} {
		rows, err := s.db.Query(s.t.Context(), "select t::text from "+table+" t order by 1")
		require.NoError(s.t, err)
		for rows.Next() {
			var row string
			require.NoError(s.t, rows.Scan(&row))
			all[table] = append(all[table], row)
		}
		require.NoError(s.t, rows.Err())
	}
	return all
}

func (s *stack) count(query string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRow(s.t.Context(), query, args...).Scan(&n))
	return n
}

// events are the types of an order's events by version, as in "1 OrderCreated, 2 PaymentSucceeded".
func (s *stack) events(no string) string {
	s.t.Helper()
	rows, err := s.db.Query(s.t.Context(),
		"select aggregate_version, event_type from t_outbox_event where aggregate_id = $1 order by aggregate_version", no)
	require.NoError(s.t, err)
	var list []string
	for rows.Next() {
		var version int
		var kind string
		require.NoError(s.t, rows.Scan(&version, &kind))
		list = append(list, fmt.Sprintf("%d %s", version, kind))
	}
	require.NoError(s.t, rows.Err())
	return strings.Join(list, ", ")
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	body, err := json.Marshal(v)
	require.NoError(t, err)
	return body
}

func decode[T any](t testing.TB, body []byte) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(body, &v), "%s", body)
	return v
}
