package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/lease"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

// stage is one outbox with a broker beside it.
type stage struct {
	t     *testing.T
	url   string
	db    *gorm.DB
	sql   *pgxpool.Pool // as a person with psql
	kafka *testkit.Broker
	logs  *testkit.LogCapture
}

func setup(t *testing.T) *stage {
	t.Helper()
	return setupOn(t, testkit.Postgres(t, Migrations))
}

// setupOn is setup on a database that is there.
func setupOn(t *testing.T, url string) *stage {
	t.Helper()
	s := &stage{t: t, url: url, kafka: testkit.Kafka(t, event.Topic), logs: testkit.Logs()}
	var err error
	s.db, err = postgres.Open(t.Context(), s.url, "test")
	require.NoError(t, err)
	t.Cleanup(func() { postgres.Close(s.db) })
	s.sql, err = pgxpool.New(t.Context(), s.url)
	require.NoError(t, err)
	t.Cleanup(s.sql.Close)
	t.Cleanup(func() {
		if t.Failed() {
			for line := range strings.Lines(s.logs.Text()) {
				if !strings.Contains(line, `"level":"DEBUG"`) {
					t.Log(line)
				}
			}
		}
	})
	return s
}

// soon is much longer than anything here takes on a machine that has the time.
const soon = 3 * time.Minute

// quick makes everything that a test waits for short, and the bounds that must not be reached on a slow machine long:
// a lease or a deadline that ran out there would be another story. leasesRunOut ends them where the story wants it.
func quick(c *Config) {
	c.Lease, c.Deadline, c.Margin = 2*time.Minute, time.Minute, 30*time.Second
	c.RetryBase, c.RetryCap = 5*time.Millisecond, 100*time.Millisecond
	c.Poll = 100 * time.Millisecond
}

// relay makes a relay that the caller runs or takes apart.
func (s *stage) relay(options ...func(*Config)) *Relay {
	s.t.Helper()
	pub, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: s.kafka.Brokers(), ClientID: "relay", Log: slog.New(s.logs)})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, pub.Close()) })
	c := Config{DatabaseURL: s.url, Publisher: pub, Log: slog.New(s.logs), Metrics: prometheus.NewRegistry()}
	quick(&c)
	for _, o := range options {
		o(&c)
	}
	r, err := NewRelay(c)
	require.NoError(s.t, err)
	s.t.Cleanup(r.db.Close)
	return r
}

// run starts a relay beside the test.
func (s *stage) run(options ...func(*Config)) *testkit.Task {
	s.t.Helper()
	return testkit.Run(s.t, "relay", s.relay(options...).Run)
}

// created is version v of an order.
func created(order string, v int64) event.Event {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC)
	payload, err := json.Marshal(event.Order{
		OrderNo: order, UserID: "u", Title: "t", Amount: 100, Currency: "CNY", Status: event.StatusCreated, Version: v, CreatedAt: at, OccurredAt: at,
	})
	if err != nil {
		panic(err)
	}
	return event.Event{
		ID: event.NewID(event.OrderCreated, order, fmt.Sprint(v)), Type: event.OrderCreated, Version: 1, Source: "/payment",
		AggregateType: event.AggregateOrder, AggregateID: order, AggregateVersion: v, Time: at, Payload: payload,
	}
}

// append commits events, each in a transaction of its own.
func (s *stage) append(events ...event.Event) {
	s.t.Helper()
	for _, e := range events {
		require.NoError(s.t, postgres.Transaction(context.Background(), s.db, func(tx *gorm.DB) error {
			return Append(context.Background(), tx, e)
		}))
	}
}

// claimAndRead is what a batch starts with.
func (r *Relay) claimAndRead(ctx context.Context, hold lease.Hold, l *lane, n int) (rows []row, waiting int, err error) {
	got, err := r.claim(ctx, hold, l, n)
	if err == nil && len(got.ids) > 0 {
		rows, err = r.readClaim(ctx, hold, *l, got)
	}
	return rows, got.waiting, err
}

// fill commits n events over the given number of keys, in bulk: the rows that Append would write. Keys are called
// prefix-0, prefix-1, ...
func (s *stage) fill(prefix string, n, keys int) {
	s.t.Helper()
	s.exec(`insert into t_outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
	                                    destination, message_key, payload, headers, created_at, next_retry_at)
	        select $1 || '-' || i, 'Order', $1 || '-' || (i % $3), i / $3 + 1, 'OrderCreated', 1, 'order-events', $1 || '-' || (i % $3),
	               repeat('x', 200), 'ce_id: ' || $1 || '-' || i || E'\nce_aggregateversion: ' || (i / $3 + 1) || E'\n',
	               now() + i * interval '1 microsecond' - interval '1 second', now() + i * interval '1 microsecond' - interval '1 second'
	        from generate_series(0, $2::bigint - 1) i`, prefix, n, keys)
}

func (s *stage) exec(sql string, args ...any) int64 {
	s.t.Helper()
	tag, err := s.sql.Exec(s.t.Context(), sql, args...)
	require.NoError(s.t, err)
	return tag.RowsAffected()
}

func (s *stage) count(where string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.sql.QueryRow(s.t.Context(), "select count(*) from t_outbox_event where "+where, args...).Scan(&n))
	return n
}

// leasesRunOut is what time does to the claims of relays that have gone.
func (s *stage) leasesRunOut() {
	s.t.Helper()
	s.exec("update t_outbox_claim set lease_until = now() - interval '1 second'")
}

// eventually waits until exactly n rows match.
func (s *stage) eventually(n int, where string, args ...any) {
	s.t.Helper()
	testkit.Eventually(s.t, soon, func() error {
		if got := s.count(where, args...); got != n {
			return fmt.Errorf("%d rows with %s, want %d", got, where, n)
		}
		return nil
	})
}

// published is how often each event id stands on the topic.
func (s *stage) published() map[string]int {
	s.t.Helper()
	ids := map[string]int{}
	for _, r := range testkit.ReadTopic(s.t, s.kafka.Brokers(), event.Topic) {
		ids[header(r, "ce_id")]++
	}
	return ids
}

func header(r event.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
