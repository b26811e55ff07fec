package consumertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"testing"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

// world is what one case has for itself.
type world struct {
	testing.TB
	s      Service
	broker *testkit.Broker
	dbURL  string
	db     *gorm.DB
	env    service.Env
}

// newWorld makes a world whose topics have one partition, unless the case is about several: then every message is
// behind every other, and what holds one up holds all up.
func newWorld(t testing.TB, s Service, partitions int) *world {
	t.Helper()
	if s.Within == 0 {
		s.Within = 2 * time.Minute
	}
	if s.Args == nil {
		s.Args = []string{"serve"}
	}
	w := &world{TB: t, s: s}
	w.broker = testkit.Kafka(t, fmt.Sprintf("%s:%d", event.Topic, partitions), fmt.Sprintf("%s:%d", event.RedeliveryTopic(s.Group), partitions))
	w.dbURL = patient(t, testkit.Postgres(t, s.Migrations...))
	db, err := postgres.Open(t.Context(), w.dbURL, "consumertest")
	w.must(err)
	t.Cleanup(func() { postgres.Close(db) })
	w.db = db
	w.must(db.Exec(fmt.Sprintf(faultTrigger, s.Table)).Error)
	w.env = service.Env{
		"DATABASE_URL": w.dbURL, "KAFKA_BROKERS": w.broker.Brokers(), "OPS_TOKEN": "consumertest-ops-token",
		// Long times made short, so that the suite takes seconds and not minutes.
		"KAFKA_SESSION_TIMEOUT": "3s", "CONSUMER_BACKOFF": "50ms", "CONSUMER_MAX_BACKOFF": "500ms", "CONSUMER_RETRY_POLL": "100ms",
		"CONSUMER_ATTEMPTS": "5",
		// And one made long: no case is about a slow handler, and a slow machine must not turn one into the other.
		"CONSUMER_HANDLER_TIMEOUT": "2m", "CONSUMER_LEASE": "3m",
	}
	if s.Env != nil {
		maps.Copy(w.env, s.Env(t))
	}
	return w
}

// patient lets whoever waits in the database wait for the case, and not for a limit that a slow machine reaches.
func patient(t testing.TB, database string) string {
	u, err := url.Parse(database)
	if err != nil {
		t.Fatalf("%v", err)
	}
	q := u.Query()
	for _, limit := range []string{"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"} {
		q.Set(limit, "0")
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%v", err)
	}
}

// persistent gives messages more attempts than a slow machine can use up before the case heals what it broke.
func (w *world) persistent() { w.env["CONSUMER_ATTEMPTS"] = "1000" }

// start runs the service as a process, with addresses of its own.
func (w *world) start() *testkit.Process {
	w.Helper()
	p, opsAddr := w.launch(w.env)
	p.WaitReady(opsAddr, w.s.Within)
	return p
}

func (w *world) launch(env service.Env) (*testkit.Process, string) {
	w.Helper()
	env = maps.Clone(env)
	env["HTTP_ADDR"], env["OPS_ADDR"] = testkit.FreeAddr(w), testkit.FreeAddr(w)
	return testkit.Exec(w, w.s.Program, env, w.s.Args...), env["OPS_ADDR"]
}

// behind gives the database's URL through a proxy.
func (w *world) behind() (*testkit.Link, service.Env) {
	w.Helper()
	u, err := url.Parse(w.dbURL)
	w.must(err)
	link := testkit.Proxy(w, u.Host)
	u.Host = link.Addr()
	env := maps.Clone(w.env)
	env["DATABASE_URL"] = u.String()
	return link, env
}

func (w *world) send(events ...event.Event) {
	w.Helper()
	records := make([]event.Record, len(events))
	for i, e := range events {
		records[i] = Record(e)
	}
	testkit.Produce(w, w.broker.Brokers(), event.Topic, records...)
}

func (w *world) sendRaw(records ...event.Record) {
	w.Helper()
	testkit.Produce(w, w.broker.Brokers(), event.Topic, records...)
}

// orders names n orders of the case.
func orders(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("order-%03d", i)
	}
	return names
}

func (w *world) effects(order string) int64 {
	w.Helper()
	return w.count(w.s.Effects, order)
}

func (w *world) count(query string, args ...any) (n int64) {
	w.Helper()
	w.must(w.db.Raw(query, args...).Scan(&n).Error)
	return n
}

// eventually waits for something to become true; what says what it was.
func (w *world) eventually(what string, check func() bool) {
	w.Helper()
	testkit.Eventually(w, w.s.Within, func() error {
		if !check() {
			return errors.New("not yet: " + what)
		}
		return nil
	})
}

// happens waits until each order has an effect.
func (w *world) happens(names ...string) {
	w.Helper()
	for _, name := range names {
		w.eventually("the effect of "+name, func() bool { return w.effects(name) > 0 })
	}
}

// once waits until everything has come to rest, and then each order must have exactly one effect.
func (w *world) once(names ...string) {
	w.Helper()
	w.happens(names...)
	w.rests()
	for _, name := range names {
		if n := w.effects(name); n != 1 {
			w.Fatalf("%s has %d effects instead of 1", name, n)
		}
	}
}

// rests waits until the group has acked everything and nothing is under way.
func (w *world) rests() {
	w.Helper()
	for _, topic := range []string{event.Topic, event.RedeliveryTopic(w.s.Group)} {
		testkit.Eventually(w, w.s.Within, func() error {
			ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
			defer cancel()
			lag, err := kafka.Lag(ctx, w.broker.Brokers(), w.s.Group, topic)
			for p, n := range lag {
				if n > 0 {
					err = errors.Join(err, fmt.Errorf("%d messages of %s/%d are not acked", n, topic, p))
				}
			}
			return err
		})
	}
	w.eventually("the retry lane is empty", func() bool {
		return w.count("SELECT count(*) FROM t_message_consume WHERE status IN ('PROCESSING', 'RETRY', 'WAITING')") == 0
	})
}

// letters counts dead letters.
func (w *world) letters() int64 {
	w.Helper()
	return w.count("SELECT count(*) FROM t_dead_letter")
}

// noLetters fails when something was parked.
func (w *world) noLetters() {
	w.Helper()
	if n := w.letters(); n != 0 {
		w.Fatalf("%d messages are parked", n)
	}
}

// ready is the status of /readyz and what it says; 0 when there is no answer.
func (w *world) ready(opsAddr string) (int, string) {
	req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "http://"+opsAddr+"/readyz", nil)
	w.must(err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(body)
}
