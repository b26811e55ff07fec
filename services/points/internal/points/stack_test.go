package points_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/services/points/internal/points"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/facts"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const opsToken = "points-component-test-token"

// within is how long anything may take on a busy machine. Nothing waits for its end.
const within = 3 * time.Minute

// stack is the service as it runs, on a database and a broker of the test's own.
type stack struct {
	t      testing.TB
	broker *testkit.Broker
	db     *gorm.DB
	env    service.Env
}

func newStack(t testing.TB) *stack {
	broker := testkit.Kafka(t, event.Topic, event.RedeliveryTopic(points.Group))
	url := testkit.Postgres(t, points.Migrations...)
	db, err := postgres.Open(t.Context(), url, "test")
	require.NoError(t, err)
	t.Cleanup(func() { postgres.Close(db) })
	return &stack{t: t, broker: broker, db: db, env: service.Env{
		"DATABASE_URL": url, "KAFKA_BROKERS": broker.Brokers(), "HTTP_ADDR": testkit.FreeAddr(t), "OPS_ADDR": testkit.FreeAddr(t),
		"OPS_TOKEN": opsToken, "CONSUMER_BACKOFF": "20ms", "CONSUMER_MAX_BACKOFF": "100ms", "CONSUMER_RETRY_POLL": "50ms", "LOG_LEVEL": "error",
	}}
}

// serve runs the program's own entry point beside the test.
func (s *stack) serve() *testkit.Task {
	return testkit.Run(s.t, "points serve", func(ctx context.Context) error { return points.Serve(ctx, s.env) })
}

func (s *stack) send(records ...event.Record) {
	testkit.Produce(s.t, s.broker.Brokers(), event.Topic, records...)
}

// get reads JSON from an address; the error says what came instead.
func (s *stack) get(addr, path string, out any) error {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.env[addr]+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+opsToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", path, resp.StatusCode)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// facts are what reconciliation is told; they are on one page.
func (s *stack) facts() (page facts.GroupPage) {
	s.t.Helper()
	require.NoError(s.t, s.get("OPS_ADDR", "/ops/facts", &page))
	return page
}

// byHand does to the tables what the service never would, and the ledger's trigger forbids.
func (s *stack) byHand(statements ...string) {
	s.t.Helper()
	require.NoError(s.t, s.db.Transaction(func(tx *gorm.DB) error {
		for _, statement := range append([]string{"SET LOCAL session_replication_role = replica"}, statements...) {
			if err := tx.Exec(statement).Error; err != nil {
				return err
			}
		}
		return nil
	}))
}

type account struct {
	Balance int64
	Entries []struct {
		OrderNo, Kind string
		Points        int64
	}
}

func (s *stack) account(user string) (a account, err error) {
	return a, s.get("HTTP_ADDR", "/accounts/"+user, &a)
}

// hasPoints waits until the API shows the balance and the number of entries.
func (s *stack) hasPoints(user string, balance int64, entries int) {
	s.t.Helper()
	testkit.Eventually(s.t, within, func() error {
		a, err := s.account(user)
		if err == nil && (a.Balance != balance || len(a.Entries) != entries) {
			err = fmt.Errorf("%s has %d points in %d entries", user, a.Balance, len(a.Entries))
		}
		return err
	})
}

// logged waits until the consume log has the given number of rows in a status.
func (s *stack) logged(status string, want int64) {
	s.t.Helper()
	s.counts(want, "SELECT count(*) FROM t_message_consume WHERE status = ?", status)
}

// hasLetters waits until so many dead letters are there.
func (s *stack) hasLetters(want int64) {
	s.t.Helper()
	s.counts(want, "SELECT count(*) FROM t_dead_letter")
}

func (s *stack) counts(want int64, query string, args ...any) {
	s.t.Helper()
	testkit.Eventually(s.t, within, func() error {
		var rows int64
		err := s.db.Raw(query, args...).Scan(&rows).Error
		if err == nil && rows != want {
			err = fmt.Errorf("%d rows instead of %d: %s %v", rows, want, query, args)
		}
		return err
	})
}

func (s *stack) count(query string, args ...any) (n int64) {
	s.t.Helper()
	require.NoError(s.t, s.db.Raw(query, args...).Scan(&n).Error)
	return n
}

// paid is what payment publishes for an order of 12.50.
func paid(orderNo, user string) event.Event {
	return orderEvent(event.PaymentSucceeded, event.Order{OrderNo: orderNo, UserID: user, Amount: 1250, Currency: "EUR",
		Status: event.StatusPaid, PreviousStatus: event.StatusCreated, Version: 2, PaidAt: &someTime})
}

var someTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func orderEvent(eventType string, o event.Order) event.Event {
	o.CreatedAt, o.OccurredAt, o.Title = someTime, someTime, "a test"
	payload, err := json.Marshal(o)
	if err != nil {
		panic(err) // an order always encodes
	}
	return event.Event{
		ID: event.NewID(eventType, o.OrderNo, "test"), Type: eventType, Version: 1, Source: "/payment",
		AggregateType: event.AggregateOrder, AggregateID: o.OrderNo, AggregateVersion: o.Version, Time: someTime, Payload: payload,
	}
}

func record(e event.Event) event.Record {
	return event.Record{Key: []byte(e.AggregateID), Value: e.Payload, Headers: e.Headers()}
}
