package replay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/replay"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	group = "g"
	token = "replay-test-ops-token"
	soon  = 3 * time.Minute // more than a slow machine needs
)

// world is a consumer of the real kind, whose handler is as bad as the test wants, and a payment that knows every event.
type world struct {
	t      *testing.T
	broker *testkit.Broker
	url    string
	db     *gorm.DB
	change func(*consumer.Config)
	// handler is handle in a transaction, unless the test says otherwise.
	handler consumer.Handler

	mended atomic.Bool // payments can be handled
	down   atomic.Bool // payment does not answer
	sent   map[string]event.Record
	asked  func() // what happens when payment has redelivered, before it answers
	source string // URL of payment's operations side
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, url: testkit.Postgres(t, inbox.Migrations, audit.Migrations), sent: map[string]event.Record{}, change: func(*consumer.Config) {}, asked: func() {}}
	w.handler = consumer.InTransaction(w.handle)
	w.broker = testkit.Kafka(t, event.Topic, event.RedeliveryTopic(group), event.RedeliveryTopic("other"))
	var err error
	w.db, err = postgres.Open(t.Context(), w.url, "test")
	require.NoError(t, err)
	t.Cleanup(func() { postgres.Close(w.db) })
	// Without a key: doing it twice would show. The road and the attempt show how it came.
	w.exec("CREATE TABLE t_effect (event_id text NOT NULL, payload text NOT NULL, mode text NOT NULL, replay_id text NOT NULL, attempt int NOT NULL, first_seen timestamptz NOT NULL)")
	w.source = w.payment()
	return w
}

// payment gives and redelivers what was sent.
func (w *world) payment() string {
	s := ops.NewServer(token, prometheus.NewRegistry())
	s.Handle("GET /ops/outbox/{id}/record", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		record, ok := w.sent[r.PathValue("id")]
		if !ok {
			ops.Problem(rw, http.StatusNotFound, "not-found", "no such event")
			return
		}
		ops.WriteJSON(rw, http.StatusOK, record)
	}))
	s.Handle("POST /ops/redeliver", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var ask replay.Redelivery
		if w.down.Load() {
			ops.Problem(rw, http.StatusServiceUnavailable, "unavailable", "out of order")
			return
		}
		if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || ask.Check() != nil {
			ops.Problem(rw, http.StatusBadRequest, "bad-body", "bad")
			return
		}
		for _, id := range ask.EventIDs {
			record := w.sent[id]
			record.Headers = append(record.Headers[:len(record.Headers):len(record.Headers)], event.Header{Key: event.ReplayHeader, Value: []byte(ask.ReplayID)})
			testkit.Produce(w.t, w.broker.Brokers(), event.RedeliveryTopic(ask.Group), record)
		}
		w.asked()
		ops.WriteJSON(rw, http.StatusOK, map[string]int{"sent": len(ask.EventIDs)})
	}))
	server := httptest.NewServer(s)
	w.t.Cleanup(server.Close)
	return server.URL
}

func (w *world) handle(ctx context.Context, tx *gorm.DB, e event.Event) error {
	d := consumer.DeliveryOf(ctx)
	// The effect comes before the failure: what is rolled back would show otherwise.
	if err := tx.Exec("INSERT INTO t_effect VALUES (?, ?, ?, ?, ?, ?)", e.ID, string(e.Payload), string(d.Mode), d.ReplayID, d.Attempt, d.FirstSeen).Error; err != nil {
		return err
	}
	if !w.mended.Load() {
		return errors.New("this build cannot")
	}
	return nil
}

// start runs one process of the group and returns its operations side.
func (w *world) start() (ops.Client, *testkit.Task) {
	w.t.Helper()
	addr := testkit.FreeAddr(w.t)
	task := testkit.Run(w.t, "consumer", func(ctx context.Context) error {
		var cfg consumer.Settings
		env := service.Env{
			"KAFKA_BROKERS": w.broker.Brokers(), "CONSUMER_HANDLER_TIMEOUT": "5m", "CONSUMER_LEASE": "15m", // out of a slow machine's reach
			"CONSUMER_BACKOFF": "5ms", "CONSUMER_MAX_BACKOFF": "10ms", "CONSUMER_RETRY_POLL": "20ms", "CONSUMER_ATTEMPTS": "2",
			"CONSUMER_FAILURES_IN_A_ROW": "1000", "PAYMENT_OPS_URL": w.source, "OPS_TOKEN": token,
		}
		if err := env.Parse(&cfg); err != nil {
			return err
		}
		db, err := postgres.Open(ctx, w.url, "consumer")
		if err != nil {
			return err
		}
		p, err := service.Start(ctx, "test", service.Base{OpsAddr: addr, OpsToken: token, LogLevel: "error"})
		if err != nil {
			return err
		}
		p.Close(func() { postgres.Close(db) })
		full := consumer.Config{Settings: cfg, Group: group, DB: db}
		w.change(&full)
		if err := consumer.Run(p, full, w.handler); err != nil {
			return err
		}
		return p.Wait()
	})
	c := ops.Client{BaseURL: "http://" + addr, Token: token}
	w.eventually(func() error { return c.GetJSON(w.t.Context(), "/ops/replays", nil, nil) })
	return c, task
}

// letters makes n dead letters, of one order each.
func (w *world) letters(prefix string, n int) []event.Event {
	w.t.Helper()
	before := w.count("t_dead_letter WHERE state = 'OPEN'")
	events := w.events(prefix, n)
	for _, e := range events {
		testkit.Produce(w.t, w.broker.Brokers(), event.Topic, w.sent[e.ID])
	}
	w.until(before+int64(n), "t_dead_letter WHERE state = 'OPEN'")
	return events
}

// events are known to payment and to nobody else.
func (w *world) events(prefix string, n int) []event.Event {
	events := make([]event.Event, n)
	for i := range events {
		events[i] = consumertest.Paid(fmt.Sprintf("%s-%d", prefix, i), "ann")
		w.sent[events[i].ID] = consumertest.Record(events[i])
	}
	return events
}

// body is a request by ann.
func body(more map[string]any) map[string]any {
	b := map[string]any{"actor": "ann", "reason": "the build is mended"}
	for k, v := range more {
		b[k] = v
	}
	return b
}

func (w *world) plan(c ops.Client, selection map[string]any, rate int) (job replay.Job) {
	w.t.Helper()
	require.NoError(w.t, c.PostJSON(w.t.Context(), "/ops/replays", body(map[string]any{"selection": selection, "rate": rate}), &job))
	return job
}

func (w *world) do(c ops.Client, id, verb string, more map[string]any) (job replay.Job, err error) {
	return job, c.PostJSON(w.t.Context(), "/ops/replays/"+id+"/"+verb, body(more), &job)
}

func (w *world) get(c ops.Client, id string) replay.Job {
	w.t.Helper()
	var told struct{ Replay replay.Job }
	require.NoError(w.t, c.GetJSON(w.t.Context(), "/ops/replays/"+id, nil, &told))
	return told.Replay
}

func (w *world) reaches(c ops.Client, id, state string) (job replay.Job) {
	w.t.Helper()
	w.eventually(func() error {
		if job = w.get(c, id); job.State != state {
			return fmt.Errorf("the job is %s (%v), want %s", job.State, job.States, state)
		}
		return nil
	})
	return job
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	require.NoError(w.t, w.db.Exec(sql, args...).Error)
}

func (w *world) count(rest string, args ...any) (n int64) {
	w.t.Helper()
	require.NoError(w.t, w.db.Raw("SELECT count(*) FROM "+rest, args...).Scan(&n).Error)
	return n
}

func (w *world) until(n int64, rest string, args ...any) {
	w.t.Helper()
	w.eventually(func() error {
		if got := w.count(rest, args...); got != n {
			return fmt.Errorf("%d of %s, want %d", got, rest, n)
		}
		return nil
	})
}

func (w *world) eventually(check func() error) {
	w.t.Helper()
	testkit.Eventually(w.t, soon, check)
}

// leasesRunOut is what time does to the claims of a process that has gone.
func (w *world) leasesRunOut() {
	w.t.Helper()
	w.exec("UPDATE t_replay_item SET lease_until = now() - interval '1 second' WHERE state = 'CLAIMED'")
	w.exec("UPDATE t_message_consume SET lease_until = now() - interval '1 second' WHERE status = 'PROCESSING'")
}
