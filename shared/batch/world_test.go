package batch_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"gorm.io/gorm"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/batch"
	"example.com/paycast/shared/batch/internal/effect"
	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

const group = "g"

var migrations = []postgres.Set{inbox.Migrations, audit.Migrations, effect.Migrations}

// world is a broker, a database, and a way to run batch consumers on them.
type world struct {
	t      testing.TB
	broker *testkit.Broker
	url    string
	db     *gorm.DB
	ops    string // the operations side of the last consumer in this process
	traces string // where consumers in this process send their spans; "" is nowhere
}

func newWorld(t testing.TB, partitions int) *world {
	w := &world{t: t, url: testkit.Postgres(t, migrations...)}
	w.broker = testkit.Kafka(t, fmt.Sprintf("%s:%d", event.Topic, partitions), event.RedeliveryTopic(group)+":1")
	var err error
	w.db, err = postgres.Open(t.Context(), w.url, "test")
	require.NoError(t, err)
	t.Cleanup(func() { postgres.Close(w.db) })
	return w
}

func (w *world) run(h consumer.Handler, change func(*batch.Config)) *testkit.Task {
	w.t.Helper()
	db, err := postgres.Open(w.t.Context(), w.url, "consumer")
	require.NoError(w.t, err)
	addr := testkit.FreeAddr(w.t)
	w.ops = addr
	return testkit.Run(w.t, "consumer", func(ctx context.Context) error {
		cfg := batch.Config{Config: consumer.Config{Group: group, DB: db, Settings: consumer.Settings{
			// No machine is so slow that it gets to the end of these: an attempt fails only when the test lets it fail.
			Brokers: w.broker.Brokers(), Session: session, HandlerTimeout: 10 * time.Minute, Lease: 20 * time.Minute, Attempts: 4,
			// The lane waits for the test to end: what it would do is not asked here.
			Backoff: time.Hour, MaxBackoff: 24 * time.Hour, MaxWait: time.Hour, Workers: 1,
			RetryPoll: time.Second, FailuresInARow: 5, Stuck: 30 * time.Second, LetterRetention: time.Hour,
		}}}
		if change != nil {
			change(&cfg)
		}
		p, err := service.Start(ctx, "test", service.Base{OpsAddr: addr, LogLevel: "error", OTLPEndpoint: w.traces})
		if err != nil {
			return err
		}
		p.Close(func() { postgres.Close(db) })
		if err := batch.Run(p, cfg, h); err != nil {
			return err
		}
		return p.Wait()
	})
}

// versions are events of one order, from version 1.
func versions(order string, n int) []event.Event {
	events := make([]event.Event, n)
	for i := range events {
		o := consumertest.Order(order, "ann")
		o.Version = int64(i + 1)
		o.TradeNo = fmt.Sprint(o.TradeNo, "-", i)
		events[i] = consumertest.Event(event.PaymentSucceeded, o)
	}
	return events
}

func (w *world) send(events ...event.Event) {
	w.t.Helper()
	for some := range slices.Chunk(events, 50) { // the time that Produce may take is the same for one and for many
		var records []event.Record
		for _, e := range some {
			records = append(records, consumertest.Record(e))
		}
		testkit.Produce(w.t, w.broker.Brokers(), event.Topic, records...)
	}
}

func (w *world) count(query string, args ...any) (n int64) {
	w.t.Helper()
	require.NoError(w.t, w.db.Raw(query, args...).Scan(&n).Error)
	return n
}

func (w *world) effects() int64 { return w.count("SELECT count(*) FROM t_effect") }

func (w *world) rows(status string) int64 {
	return w.count("SELECT count(*) FROM t_message_consume WHERE status = ?", status)
}

// transactions is in how many transactions the effects were made.
func (w *world) transactions() int64 { return w.count("SELECT count(DISTINCT tx) FROM t_effect") }

func (w *world) requireOrder() {
	w.t.Helper()
	require.Zero(w.t, w.count(`SELECT count(*) FROM (
		SELECT version <= lag(version) OVER (PARTITION BY order_no ORDER BY n) AS wrong FROM t_effect) e WHERE wrong`),
		"effects of one order out of order, or twice")
}

// joined waits until the group has shared out its partitions among n members. Each process is one for each topic.
func (w *world) joined(n int) {
	w.t.Helper()
	client, err := kadm.NewOptClient(kgo.SeedBrokers(w.broker.Brokers()))
	require.NoError(w.t, err)
	defer client.Close()
	testkit.Eventually(w.t, within, func() error {
		groups, err := client.DescribeGroups(w.t.Context(), group)
		if g := groups[group]; err == nil && (g.State != "Stable" || len(g.Members) != n) {
			err = fmt.Errorf("the group is %s with %d members", g.State, len(g.Members))
		}
		return err
	})
}

// notReady waits until the consumer says that it is not ready, and why.
func (w *world) notReady(why string) {
	w.t.Helper()
	testkit.Eventually(w.t, within, func() error {
		req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+w.ops+"/readyz", nil)
		require.NoError(w.t, err)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err == nil && (resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), why)) {
			err = fmt.Errorf("/readyz is %d: %s", resp.StatusCode, body)
		}
		return err
	})
}

// drained waits until the group has acked everything.
func (w *world) drained() {
	w.t.Helper()
	high := map[int32]int64{}
	for _, r := range testkit.ReadTopic(w.t, w.broker.Brokers(), event.Topic) {
		high[r.Partition] = max(high[r.Partition], r.Offset+1)
	}
	for p, want := range high {
		testkit.Eventually(w.t, within, func() error {
			if got := w.committed(p); got != want {
				return fmt.Errorf("partition %d is committed at %d of %d; %d effects", p, got, want, w.effects())
			}
			return nil
		})
	}
}

// requireAllOnce waits until everything is acked and has left the lane, and then demands n events, each with its effect,
// in the order of its order.
func (w *world) requireAllOnce(n int64) {
	w.t.Helper()
	w.drained()
	testkit.Eventually(w.t, within, func() error {
		if left := w.count("SELECT count(*) FROM t_message_consume WHERE status IN ('PROCESSING', 'RETRY', 'WAITING')"); left > 0 {
			return fmt.Errorf("%d messages are in the lane", left)
		}
		return nil
	})
	require.Equal(w.t, n, w.effects())
	require.Equal(w.t, n, w.rows("SUCCESS"))
	require.Zero(w.t, w.count("SELECT count(*) FROM t_dead_letter"))
	w.requireOrder()
}
