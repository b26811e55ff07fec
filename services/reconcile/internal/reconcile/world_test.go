package reconcile

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/facts"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

const token = "an-ops-token-of-this-test"

func TestMain(m *testing.M) { testkit.Main(m) }

// world is everybody that a reconciler asks: a source and groups that speak the facts contract, and a Kafka broker that
// holds the committed offsets.
type world struct {
	t      testing.TB
	broker *testkit.Broker
	source *httptest.Server
	groups map[string]*httptest.Server

	mu   sync.Mutex
	is   Snapshot // what they answer
	page int      // how much a page holds
	// meddle, when set, is called with each question before it is answered, and without the lock.
	meddle func(part string, r *http.Request)
}

func newWorld(t testing.TB, s Snapshot) *world {
	w := &world{t: t, broker: testkit.Kafka(t, event.Topic), is: s, page: 2, groups: map[string]*httptest.Server{}}
	w.source = w.serve("source", func(r *http.Request) any { return w.sourcePage(r) })
	for _, g := range s.Groups {
		w.groups[g.Name] = w.serve(g.Name, func(r *http.Request) any { return w.groupPage(g.Name, r) })
		offsets := kadm.Offsets{}
		for p, at := range g.Committed {
			offsets.AddOffset(event.Topic, p, at, -1)
		}
		w.commit(g.Name, offsets)
	}
	return w
}

func (w *world) serve(part string, answer func(*http.Request) any) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ops/facts", func(out http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		meddle := w.meddle
		w.mu.Unlock()
		if meddle != nil {
			meddle(part, r)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		ops.WriteJSON(out, http.StatusOK, answer(r))
	})
	server := httptest.NewServer(ops.Guard(token, mux))
	w.t.Cleanup(server.Close)
	return server
}

func (w *world) sourcePage(r *http.Request) (page facts.SourcePage) {
	q := r.URL.Query()
	for _, o := range w.is.Orders {
		switch {
		case q.Has("order_no") && o.OrderNo != q.Get("order_no"), !q.Has("order_no") && o.OrderNo <= q.Get("after"):
			continue
		case len(page.Orders) == w.page:
			page.Next = page.Orders[w.page-1].OrderNo
			return page
		}
		page.Orders = append(page.Orders, o)
	}
	return page
}

func (w *world) groupPage(name string, r *http.Request) facts.GroupPage {
	q := r.URL.Query()
	g := w.is.find(name)
	page := facts.GroupPage{Group: name}
	sorted := slices.SortedFunc(slices.Values(g.Facts), func(a, b facts.Fact) int { return strings.Compare(a.EventID, b.EventID) })
	for _, f := range sorted {
		switch {
		case q.Has("event_id") && !slices.Contains(q["event_id"], f.EventID), !q.Has("event_id") && f.EventID <= q.Get("after"):
			continue
		case !q.Has("event_id") && len(page.Facts) == w.page:
			page.Next = page.Facts[w.page-1].EventID
			return page
		}
		page.Facts = append(page.Facts, f)
	}
	if !q.Has("event_id") {
		page.Faults = g.Faults
	}
	return page
}

// change alters what they answer from now on.
func (w *world) change(do func(s *Snapshot)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do(&w.is)
}

func (w *world) commit(group string, offsets kadm.Offsets) {
	client, err := kgo.NewClient(kgo.SeedBrokers(w.broker.Brokers()))
	require.NoError(w.t, err)
	defer client.Close()
	_, err = kadm.NewClient(client).CommitOffsets(w.t.Context(), group, offsets)
	require.NoError(w.t, err)
}

func (w *world) commitOne(group string, partition int32, at int64) {
	offsets := kadm.Offsets{}
	offsets.AddOffset(event.Topic, partition, at, -1)
	w.commit(group, offsets)
}

// parts is whom a reconciler asks in this world.
func (w *world) parts() Parts {
	p := Parts{Source: ops.Client{BaseURL: w.source.URL, Token: token}, Groups: map[string]ops.Client{}, Brokers: w.broker.Brokers()}
	for name, server := range w.groups {
		p.Groups[name] = ops.Client{BaseURL: server.URL, Token: token}
	}
	return p
}

// env is the configuration of a reconciler in this world, with a database of its own.
func (w *world) env() service.Env {
	var urls []string
	for name, server := range maps.All(w.groups) {
		urls = append(urls, name+"="+server.URL)
	}
	return service.Env{
		"DATABASE_URL": testkit.Postgres(w.t, Migrations...), "KAFKA_BROKERS": w.broker.Brokers(), "OPS_TOKEN": token,
		"PAYMENT_OPS_URL": w.source.URL, "FACTS_URLS": strings.Join(urls, ","), "LOG_LEVEL": "error",
		// The events of the tests' snapshots carry fixed times, long before the database's clock.
		"LATE_AFTER": strconv.Itoa(1_000_000) + "h",
		"HTTP_ADDR":  testkit.FreeAddr(w.t), "OPS_ADDR": testkit.FreeAddr(w.t),
	}
}

func openStore(t testing.TB, url string) Store {
	db, err := postgres.Open(t.Context(), url, "reconcile-test")
	require.NoError(t, err)
	t.Cleanup(func() { postgres.Close(db) })
	return Store{db}
}
