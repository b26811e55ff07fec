package consumer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	group  = "g"
	token  = "consumer-test-ops-token"
	within = 3 * time.Minute // more than a slow machine needs
)

// world is a broker, a database, and a way to run consumers on them. With one partition every message is behind every
// other.
type world struct {
	t       testing.TB
	broker  *testkit.Broker
	url     string
	db      *gorm.DB // the test's own connections, whatever happens to the consumer's
	opsAddr string
}

func newWorld(t testing.TB, partitions int) *world {
	w := &world{t: t, url: testkit.Postgres(t, inbox.Migrations, audit.Migrations)}
	w.broker = testkit.Kafka(t, fmt.Sprintf("%s:%d", event.Topic, partitions), fmt.Sprintf("%s:%d", event.RedeliveryTopic(group), partitions))
	var err error
	w.db, err = postgres.Open(t.Context(), w.url, "test")
	require.NoError(t, err)
	t.Cleanup(func() { postgres.Close(w.db) })
	require.NoError(t, w.db.Exec("CREATE TABLE t_effect (order_no text NOT NULL, event_type text NOT NULL)").Error)
	return w
}

// settings are short where a test waits for something, so that it sees in a second what takes minutes in production, and
// long where a slow machine would make another story of it: nobody seems dead, and no handler too slow.
func (w *world) settings() consumer.Settings {
	return consumer.Settings{
		Brokers: w.broker.Brokers(), Session: 15 * time.Second, HandlerTimeout: 2 * time.Minute, Lease: 10 * time.Minute, Attempts: 4,
		Backoff: 20 * time.Millisecond, MaxBackoff: 200 * time.Millisecond, MaxWait: time.Hour, Workers: 2,
		RetryPoll: 50 * time.Millisecond, FailuresInARow: 3, Stuck: 10 * time.Minute, LetterRetention: time.Hour,
	}
}

// run runs a consumer as a service would. change may be nil.
func (w *world) run(h consumer.Handler, change func(*consumer.Config)) *testkit.Task {
	w.opsAddr = testkit.FreeAddr(w.t)
	return testkit.Run(w.t, "consumer", func(ctx context.Context) error {
		cfg := consumer.Config{Settings: w.settings(), Group: group}
		if change != nil {
			change(&cfg)
		}
		if cfg.DB == nil {
			db, err := postgres.Open(ctx, w.url, "consumer")
			if err != nil {
				return err
			}
			cfg.DB = db
		}
		p, err := service.Start(ctx, "test", service.Base{OpsAddr: w.opsAddr, OpsToken: token, LogLevel: "error"})
		if err != nil {
			return err
		}
		p.Close(func() { postgres.Close(cfg.DB) })
		if err := consumer.Run(p, cfg, h); err != nil {
			return err
		}
		return p.Wait()
	})
}

// behind is a link to the database that the test can disturb, and the URL through it.
func (w *world) behind() (*testkit.Link, string) {
	w.t.Helper()
	u, err := url.Parse(w.url)
	require.NoError(w.t, err)
	link := testkit.Proxy(w.t, u.Host)
	u.Host = link.Addr()
	return link, u.String()
}

// proxied opens the database through a link.
func (w *world) proxied() (*testkit.Link, *gorm.DB) {
	w.t.Helper()
	link, url := w.behind()
	db, err := postgres.Open(w.t.Context(), url, "consumer")
	require.NoError(w.t, err)
	return link, db
}

func (w *world) send(events ...event.Event) {
	w.t.Helper()
	for _, e := range events {
		testkit.Produce(w.t, w.broker.Brokers(), event.Topic, consumertest.Record(e))
	}
}

func paid(order string) event.Event { return consumertest.Paid(order, "ann") }

func effect(tx *gorm.DB, e event.Event) error {
	return tx.Exec("INSERT INTO t_effect VALUES (?, ?)", e.AggregateID, e.Type).Error
}

func (w *world) count(query string, args ...any) (n int64) {
	w.t.Helper()
	require.NoError(w.t, w.db.Raw(query, args...).Scan(&n).Error)
	return n
}

// rows counts consume-log rows in a status.
func (w *world) rows(status string) int64 {
	w.t.Helper()
	return w.count("SELECT count(*) FROM t_message_consume WHERE status = ?", status)
}

func (w *world) eventually(what string, check func() bool) {
	w.t.Helper()
	testkit.Eventually(w.t, within, func() error {
		if !check() {
			return fmt.Errorf("not yet: %s", what)
		}
		return nil
	})
}

// ops calls the operations side and returns status and body.
func (w *world) ops(method, path, body string) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+w.opsAddr+path, strings.NewReader(body))
	require.NoError(w.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	return resp.StatusCode, string(answer)
}

// opsJSON reads an answer that must be 200.
func (w *world) opsJSON(path string, out any) {
	w.t.Helper()
	status, body := w.ops(http.MethodGet, path, "")
	require.Equal(w.t, http.StatusOK, status, body)
	require.NoError(w.t, json.Unmarshal([]byte(body), out))
}
