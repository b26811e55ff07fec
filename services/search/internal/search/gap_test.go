package search_test

import (
	"maps"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/services/search/internal/search"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/testkit"
)

// withPayment is a world whose service knows where payment is.
func withPayment(t testing.TB, more map[string]string) (*world, *payment) {
	t.Helper()
	w, p := newWorld(t), newPayment(t)
	w.env = p.attach(w)
	maps.Copy(w.env, more)
	w.start()
	w.eventuallyReady()
	return w, p
}

func TestAGapIsHealedFromPaymentOnceItAnswersAndUntilThenNothingIsRecorded(t *testing.T) {
	t.Parallel()
	w, p := withPayment(t, nil)
	p.set(orderAt("a", 3))
	p.setDown(true)
	w.send(orderAt("a", 2))
	w.eventuallyNotReady("paused: order-events/")
	assert.Positive(t, p.timesRead())
	assert.Zero(t, w.count("SELECT count(*) FROM t_message_consume"), "nothing is counted against the message")
	assert.Zero(t, w.count("SELECT count(*) FROM t_order_search_projection"))
	assert.False(t, w.document("a").Found, "nothing is applied half")

	p.setDown(false)
	w.eventually("a", 2, "superseded")
	w.eventuallyReady()
	doc := w.document("a")
	assert.EqualValues(t, 3, doc.Version, "as payment has it now, and not only as of the event")
	assert.Equal(t, "CANCELED", doc.Source["status"])
	assert.EqualValues(t, 3, w.count("SELECT last_applied_version FROM t_order_search_projection"))
	assert.Equal(t, documentAsOf(orderAt("a", 3)), w.facts("a")[2].Effect)
	assert.Equal(t, "1", w.metric(`projection_version_gaps_total{group="search"}`))

	read := p.timesRead()
	w.send(orderAt("a", 1), orderAt("a", 3))
	w.eventually("a", 1, "superseded")
	w.eventually("a", 3, "applied")
	assert.Equal(t, doc, w.document("a"))
	assert.Equal(t, read, p.timesRead(), "payment is asked only when a version is missing")
	assert.Zero(t, w.count("SELECT sum(retry_count) FROM t_message_consume"))
	assert.Zero(t, w.count("SELECT count(*) FROM t_dead_letter"))
}

func TestAnEventThatPaymentContradictsIsADeadLetterAndChangesNothing(t *testing.T) {
	t.Parallel()
	w, p := withPayment(t, map[string]string{"CONSUMER_ATTEMPTS": "2"})
	p.set(orderAt("behind", 1), orderAt("fine", 3))
	w.send(orderAt("behind", 3), orderAt("unknown", 3), orderAt("fine", 3))
	for no, why := range map[string]string{
		"behind":  "version 3 is here and its owner has only version 1",
		"unknown": "reading order unknown: 404 Not Found: there is no such order",
	} {
		var text string
		testkit.Eventually(t, patience, func() error {
			return w.db.Raw("SELECT error_text FROM t_dead_letter WHERE aggregate_id = ?", no).Row().Scan(&text)
		})
		assert.Equal(t, why, text)
	}
	w.eventually("fine", 3, "applied")
	assert.EqualValues(t, 1, w.document("behind").Version)
	assert.False(t, w.document("unknown").Found)
}

func TestWhateverIsNotPaymentsWordOnTheOrderIsDownAndNotTheEventsFault(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := &elsewhere{w: w}
	w.env["PAYMENT_OPS_URL"] = other.start()
	w.start()
	w.eventuallyReady()
	w.send(orderAt("a", 2))
	for _, answer := range []http.HandlerFunc{
		http.NotFound, // an address at which something else answers
		func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusUnauthorized) },
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = rw.Write([]byte(`{"order_no": "another", "version": 9}`))
		},
		func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte(`{}`)) },
	} {
		other.answersWith(answer)
		assert.Zero(t, w.count("SELECT count(*) FROM t_message_consume"))
		assert.False(t, w.document("a").Found)
	}
}

func TestADeadVersionHoldsNoLaterOneForThatCarriesTheWholeOrder(t *testing.T) {
	t.Parallel()
	w := serve(t)
	bad := orderAt("a", 2)
	bad.CreatedAt = bad.CreatedAt.AddDate(-2026, 0, 0) // no date of the index
	w.send(orderAt("a", 1), bad, orderAt("a", 3))
	w.eventually("a", 3, "applied")
	assert.EqualValues(t, 3, w.document("a").Version)
	assert.EqualValues(t, 1, w.count("SELECT count(*) FROM t_message_consume WHERE status = 'DEAD' AND aggregate_version = 2 AND skipped"))
	assert.EqualValues(t, 1, w.count("SELECT count(*) FROM t_dead_letter WHERE state = 'OPEN'"))
}

// history is all events of some orders, in an order of its own each time.
func history() (orders []event.Order) {
	for _, no := range []string{"a", "b", "c", "d", "e"} {
		for version := range int64(3) {
			orders = append(orders, orderAt(no, version+1))
		}
	}
	rand.Shuffle(len(orders), func(i, j int) { orders[i], orders[j] = orders[j], orders[i] })
	return orders
}

func TestTheWholeHistoryOnceMoreInAnyOrderChangesNothing(t *testing.T) {
	t.Parallel()
	w := serve(t)
	once := func() {
		t.Helper()
		w.send(history()...)
		testkit.Eventually(t, patience, func() error {
			return wanted(15, w.count("SELECT count(*) FROM t_message_consume WHERE status = 'SUCCESS'"))
		})
	}
	state := func() (docs []document, rows []string) {
		for _, no := range []string{"a", "b", "c", "d", "e"} {
			docs = append(docs, w.document(no))
			require.EqualValues(t, 3, docs[len(docs)-1].Version)
		}
		require.NoError(t, w.db.Raw("SELECT t::text FROM t_order_search_projection t ORDER BY order_no").Scan(&rows).Error)
		return docs, rows
	}
	once()
	docs, rows := state()
	require.NoError(t, w.db.Exec("DELETE FROM t_message_consume").Error) // or all of it would be known
	once()
	docsAgain, rowsAgain := state()
	assert.Equal(t, docs, docsAgain)
	assert.Equal(t, rows, rowsAgain, "not even the time")
	assert.EqualValues(t, 5, w.count("SELECT count(*) FROM t_message_consume WHERE outcome = 'applied' AND aggregate_version = 3"))
}

func TestAfterTheTopicIsMadeAnewTheNewestVersionWinsAndNotTheHighestOffset(t *testing.T) {
	t.Parallel()
	w, p := withPayment(t, nil)
	for range 20 { // copies, so that offsets get higher than those of the new topic will be
		w.send(orderAt("a", 1))
	}
	w.send(orderAt("a", 2))
	w.eventually("a", 2, "applied")
	require.NoError(t, w.task.Stop())

	// Another broker has neither the topic's records nor the group's offsets: all begins at 0.
	w.broker = testkit.Kafka(t, event.Topic, event.RedeliveryTopic(search.Group))
	w.env["KAFKA_BROKERS"] = w.broker.Brokers()
	w.start()
	// Two changes in one millisecond: no clock tells them apart, and the later one comes first.
	fourth, third := orderAt("a", 4), orderAt("a", 3)
	third.Status, third.OccurredAt = event.StatusPaid, fourth.OccurredAt
	p.set(fourth)
	w.send(fourth, third, orderAt("a", 1))
	w.eventually("a", 4, "applied")
	w.eventually("a", 3, "superseded")
	doc := w.document("a")
	assert.EqualValues(t, 4, doc.Version)
	assert.Equal(t, "CANCELED", doc.Source["status"])

	require.NoError(t, search.Rebuild(t.Context(), w.env))
	assert.Equal(t, doc, w.document("a"))
}
