package search_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/services/search/internal/search"
	"example.com/paycast/shared/elastic/elastictest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/facts"
	"example.com/paycast/shared/testkit"
)

func TestAnOrdersEventsBecomeOneDocumentAsOfTheNewest(t *testing.T) {
	t.Parallel()
	w := serve(t)
	closed := orderAt("closed", 2)
	closed.Status, closed.PaidAt, closed.TradeNo = event.StatusClosed, nil, ""
	w.send(orderAt("a", 1), orderAt("closed", 1), orderAt("a", 2), closed, orderAt("a", 3))
	w.eventually("a", 3, "applied")
	w.eventually("closed", 2, "applied")

	doc := w.document("a")
	assert.EqualValues(t, 3, doc.Version)
	assert.Equal(t, map[string]any{
		"order_no": "a", "user_id": "u-1", "title": "A blue lamp", "amount": 1999.0, "currency": "EUR", "status": "CANCELED",
		"version": 3.0, "created_at": "2026-11-29T20:00:00.123456Z", "paid_at": "2026-11-29T20:01:40.123456Z",
	}, doc.Source, "a cancelled order is an ordinary document")
	assert.Equal(t, "CLOSED", w.document("closed").Source["status"])

	w.refresh()
	p := w.search(url.Values{"status": {"CANCELED"}})
	assert.EqualValues(t, 1, p.Total)
	assert.Equal(t, doc.Source, p.Orders[0], "the API shows the document")

	seen := w.facts("a")
	require.Len(t, seen, 3)
	for version := int64(1); version <= 3; version++ {
		assert.Equal(t, "applied", seen[version].Outcome)
		assert.Equal(t, documentAsOf(orderAt("a", 3)), seen[version].Effect)
	}
	assert.EqualValues(t, 3, w.count("SELECT last_applied_version FROM t_order_search_projection WHERE order_no = 'a'"))
}

func TestFiftyCopiesOfAnEventAreOneWrite(t *testing.T) {
	t.Parallel()
	w := serve(t)
	copies := make([]event.Order, 50)
	for n := range copies {
		copies[n] = orderAt("a", 1)
	}
	w.send(copies...)
	w.send(orderAt("a", 2)) // the same partition, so after the copies
	w.eventually("a", 2, "applied")
	assert.Equal(t, []int{201, 200}, w.writes("a"))
	assert.EqualValues(t, 2, w.document("a").Version)
	assert.EqualValues(t, 2, w.count("SELECT count(*) FROM t_message_consume"))
}

func TestAnOlderVersionAfterANewerIsSupersededAndChangesNothing(t *testing.T) {
	t.Parallel()
	w := serve(t)
	w.send(orderAt("a", 3)) // a gap: it carries the whole order, so nothing is waited for
	w.eventually("a", 3, "applied")
	before := w.document("a")
	w.send(orderAt("a", 1), orderAt("a", 2))
	w.eventually("a", 1, "superseded")
	w.eventually("a", 2, "superseded")
	assert.Equal(t, before, w.document("a"))
	assert.EqualValues(t, 3, w.count("SELECT last_applied_version FROM t_order_search_projection"))
	assert.Equal(t, "1", w.metric(`projection_version_gaps_total{group="search"}`))
	assert.Equal(t, "2", w.metric(`projection_superseded_total{group="search"}`))

	// The index alone would forget this within a minute; the database does not.
	w.elastic("DELETE", "/orders/_doc/b?version=9&version_type=external", "")
	w.send(orderAt("b", 3))
	w.eventually("b", 3, "superseded")
	w.elastic("DELETE", "/orders/_doc/a", "")
	w.redeliverAsNew("a", 2)
	w.eventually("a", 2, "superseded")
	assert.False(t, w.document("a").Found, "an old event must not bring a deleted document back")
}

func TestWithElasticsearchDownNothingIsRecordedAndThePartitionWaits(t *testing.T) {
	t.Parallel()
	w := serve(t)
	w.es.SetFault(elastictest.Fault{Kind: elastictest.Silent})
	w.send(orderAt("a", 1), orderAt("a", 2))
	w.eventuallyNotReady("paused: order-events/")
	w.eventuallyNotReady("elasticsearch is not available")
	assert.Zero(t, w.count("SELECT count(*) FROM t_message_consume"), "nothing is counted against the message")
	assert.Zero(t, w.count("SELECT count(*) FROM t_dead_letter"))
	status, body := w.get(nil)
	assert.Equal(t, 503, status, "%s", body)

	w.es.SetFault(elastictest.Fault{})
	w.eventually("a", 2, "applied")
	w.eventuallyReady()
	assert.EqualValues(t, 2, w.document("a").Version)
	assert.Zero(t, w.count("SELECT coalesce(sum(retry_count), 0) FROM t_message_consume"))
}

func TestAWriteThatIsDoneButNotAnsweredIsDoneOnce(t *testing.T) {
	t.Parallel()
	w := serve(t)
	w.es.SetFault(elastictest.Fault{Kind: elastictest.LoseAnswer, Times: 4}) // more than one call tries
	w.send(orderAt("a", 1))
	w.eventually("a", 1, "applied")
	assert.EqualValues(t, 1, w.document("a").Version)
	statuses := w.writes("a")
	assert.Equal(t, 201, statuses[0])
	for _, again := range statuses[1:] {
		assert.Equal(t, 409, again)
	}
	w.es.SetFault(elastictest.Fault{})
}

func TestAWriteWhoseLogIsLostIsRepeatedAndChangesNothing(t *testing.T) {
	t.Parallel()
	w := serve(t)
	// As if the process, or the connection, died between the index and the log.
	require.NoError(t, w.db.Exec(`
		CREATE FUNCTION lost() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'gone' USING ERRCODE = '08006'; END $$;
		CREATE TRIGGER lost BEFORE INSERT ON t_order_search_projection FOR EACH ROW EXECUTE FUNCTION lost()`).Error)
	w.send(orderAt("a", 1))
	w.eventuallyNotReady("paused: order-events/")
	assert.EqualValues(t, 1, w.document("a").Version, "the effect is there, the log is not")
	assert.Zero(t, w.count("SELECT count(*) FROM t_message_consume"))

	require.NoError(t, w.db.Exec("DROP TRIGGER lost ON t_order_search_projection").Error)
	w.eventually("a", 1, "applied")
	assert.EqualValues(t, 1, w.document("a").Version)
	assert.Contains(t, w.writes("a"), 409)
}

func TestWithoutItsIndexTheServiceWaitsAndMakesNone(t *testing.T) {
	t.Parallel()
	w := serve(t)
	w.elastic("DELETE", "/orders-1", "")
	w.send(orderAt("a", 1))
	w.eventuallyNotReady("the index does not exist")
	w.eventuallyNotReady("paused: order-events/")
	status, _ := w.elastic("GET", "/orders/_mapping", "")
	assert.Equal(t, 404, status)
	require.NoError(t, search.Migrate(t.Context(), w.env))
	w.eventually("a", 1, "applied")
	w.eventuallyReady()
}

func TestEveryWriteIsVersionedAndNoneIsAnUpdate(t *testing.T) {
	t.Parallel()
	w := serve(t)
	w.es.SetFault(elastictest.Fault{Kind: elastictest.LoseAnswer, Times: 1})
	for _, version := range []int64{2, 1, 3, 3, 2} {
		w.send(orderAt("a", version))
	}
	w.eventually("a", 3, "applied")
	w.eventually("a", 1, "superseded")
	total := 0
	for _, r := range w.es.Requests() {
		assert.NotContains(t, r.Path, "_update")
		assert.NotEqual(t, "DELETE", r.Method)
		for _, write := range r.Writes {
			total++
			assert.Equal(t, "external", write.Type)
			assert.Positive(t, write.Version)
			assert.Equal(t, "true", r.Query.Get("require_alias"))
		}
	}
	assert.GreaterOrEqual(t, total, 3)
}

func TestAnOrderThatTheIndexRefusesIsADeadLetterAndTheNextIsHandled(t *testing.T) {
	t.Parallel()
	w := serve(t)
	bad := orderAt("bad", 1)
	bad.CreatedAt = bad.CreatedAt.AddDate(-2026, 0, 0) // no date of the index
	w.send(bad, orderAt("a", 1))
	w.eventually("a", 1, "applied")
	var text string
	testkit.Eventually(t, patience, func() error {
		return w.db.Raw("SELECT error_text FROM t_dead_letter WHERE event_id IS NOT NULL AND aggregate_id = 'bad'").Row().Scan(&text)
	})
	assert.Contains(t, text, "document_parsing_exception")
	assert.NotContains(t, text, "blue lamp")
	assert.False(t, w.document("bad").Found)
}

func TestADocumentChangedByHandIsNotTakenForOurs(t *testing.T) {
	t.Parallel()
	w := serve(t)
	w.send(orderAt("a", 2), orderAt("b", 2), orderAt("c", 2))
	for _, no := range []string{"a", "b", "c"} {
		w.eventually(no, 2, "applied")
	}
	source := w.document("a").Source
	source["amount"] = 1
	changed, err := json.Marshal(source)
	require.NoError(t, err)
	status, answer := w.elastic("PUT", "/orders/_doc/a?version=2&version_type=external_gte", string(changed))
	require.Equal(t, 200, status, "%s", answer)
	w.elastic("DELETE", "/orders/_doc/b", "")

	assert.Equal(t, "DAMAGED", w.facts("a")[2].Effect.State)
	assert.Nil(t, w.facts("b")[2].Effect, "applied, and there is no document")
	assert.Equal(t, "PAID", w.facts("c")[2].Effect.State)
}

// What the service itself has written wrongly it takes for right: only the order tells.
func TestADocumentThatWasWrittenWrongIsToldApartFromItsOrderUntilARebuild(t *testing.T) {
	t.Parallel()
	w := serve(t)
	p := newPayment(t)
	env := p.attach(w)
	spoil := map[string]func(*facts.Contents){
		"user":     func(c *facts.Contents) { c.UserID = "u-2" },
		"title":    func(c *facts.Contents) { c.Title = "" },
		"amount":   func(c *facts.Contents) { c.Amount *= 100 },
		"currency": func(c *facts.Contents) { c.Currency = "USD" },
		"created":  func(c *facts.Contents) { c.CreatedAt = c.CreatedAt.Add(time.Microsecond) },
		"paid":     func(c *facts.Contents) { c.PaidAt = nil },
		"nothing":  func(*facts.Contents) {},
	}
	for no, wrong := range spoil {
		o := orderAt(no, 2)
		p.set(o)
		w.send(o)
		w.eventually(no, 2, "applied")
		written := contents(o)
		wrong(&written)
		text, err := json.Marshal(written)
		require.NoError(t, err)
		status, answer := w.elastic("PUT", "/orders/_doc/"+no+"?version=2&version_type=external_gte", string(text))
		require.Equal(t, 200, status, "%s", answer)
		require.NoError(t, w.db.Exec("UPDATE t_order_search_projection SET digest = ? WHERE order_no = ?", written.Digest(), no).Error)

		seen, right := w.facts(no)[2].Effect, documentAsOf(o)
		assert.Equal(t, right.State, seen.State, "%s: the service sees nothing wrong", no)
		assert.Equal(t, written.Digest(), seen.Digest, no)
		assert.Equal(t, no == "nothing", seen.Digest == right.Digest, no)
	}

	require.NoError(t, search.Rebuild(t.Context(), env))
	for no := range spoil {
		assert.Equal(t, documentAsOf(orderAt(no, 2)), w.facts(no)[2].Effect, "made anew from payment's order")
	}
}

// metric is the value of a series as /metrics shows it.
func (w *world) metric(series string) string {
	w.t.Helper()
	_, body := w.do("GET", w.ops.BaseURL+"/metrics", "")
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// redeliverAsNew lets an event come as if it never had: its row is gone, as after an archive was cut too short.
func (w *world) redeliverAsNew(orderNo string, version int64) {
	w.t.Helper()
	deleted := w.db.Exec("DELETE FROM t_message_consume WHERE aggregate_id = ? AND aggregate_version = ?", orderNo, version)
	require.NoError(w.t, deleted.Error)
	require.EqualValues(w.t, 1, deleted.RowsAffected)
	w.send(orderAt(orderNo, version))
}
