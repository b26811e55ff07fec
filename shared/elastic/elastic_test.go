package elastic_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/elastic"
	"example.com/paycast/shared/elastic/elastictest"
)

const mapping = `{"dynamic": "strict", "properties": {"status": {"type": "keyword"}, "amount": {"type": "long"}}}`

type doc struct {
	Status string `json:"status"`
}

// setup is a stand-in with an index, and a client that gives up soon.
func setup(t *testing.T) (*elastictest.Server, *elastic.Index) {
	t.Helper()
	return setupWith(t, time.Minute) // nothing here takes as long, even on a slow machine
}

func setupWith(t *testing.T, timeout time.Duration) (*elastictest.Server, *elastic.Index) {
	t.Helper()
	server, url := elastictest.Start(t)
	require.NoError(t, connect(t, url, time.Minute).Bootstrap(t.Context()))
	return server, connect(t, url, timeout)
}

func connect(t *testing.T, url string, timeout time.Duration) *elastic.Index {
	t.Helper()
	client, err := elastic.New(elastic.Config{URL: url, Timeout: timeout, Backoff: 10 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	index, err := client.Index(elastic.Definition{Alias: "orders", Mapping: mapping})
	require.NoError(t, err)
	return index
}

// writes counts how often the server saw a write of a document, by status; 0 stands for a lost answer.
func writes(server *elastictest.Server, id string) map[int]int {
	seen := map[int]int{}
	for _, r := range server.Requests() {
		for _, w := range r.Writes {
			if w.ID == id {
				seen[w.Status]++
			}
		}
	}
	return seen
}

func TestAWriteWhoseAnswerIsLostIsSentAgainAndFoundDone(t *testing.T) {
	t.Parallel()
	server, index := setup(t)
	server.SetFault(elastictest.Fault{Kind: elastictest.LoseAnswer, Times: 1})
	outcome, err := index.Put(t.Context(), "a", 1, doc{"PAID"})
	require.NoError(t, err)
	assert.Equal(t, elastic.Same, outcome)
	assert.Equal(t, map[int]int{201: 1, 409: 1}, writes(server, "a"))
}

func TestAFaultThatPassesIsNotSeenByTheCaller(t *testing.T) {
	t.Parallel()
	for _, kind := range []elastictest.Kind{elastictest.Silent, elastictest.Reject, elastictest.Unavailable, elastictest.Broken} {
		server, index := setup(t)
		server.SetFault(elastictest.Fault{Kind: kind, Times: 2})
		outcome, err := index.Put(t.Context(), "a", 1, doc{"PAID"})
		require.NoError(t, err, kind)
		assert.Equal(t, elastic.Applied, outcome, kind)
	}
}

func TestAFaultThatLastsEndsTheCallAfterThreeAttempts(t *testing.T) {
	t.Parallel()
	for kind, down := range map[elastictest.Kind]bool{
		elastictest.Silent: true, elastictest.Reject: true, elastictest.Unavailable: true,
		elastictest.Broken: false, // may be the fault of this one document: retried later, but no reason to stop all
	} {
		server, index := setup(t)
		before := len(server.Requests())
		server.SetFault(elastictest.Fault{Kind: kind})
		_, err := index.Put(t.Context(), "a", 1, doc{"PAID"})
		require.Error(t, err, kind)
		assert.Equal(t, down, elastic.Down(err), kind)
		assert.NotErrorIs(t, err, elastic.ErrDocument, kind)
		// The client library alone would have made four, and eight with ours on top.
		assert.Len(t, server.Requests(), before+3, kind)
	}
}

func TestAServerThatNeverAnswersEndsTheCallInTime(t *testing.T) {
	t.Parallel()
	const never = 10 * time.Minute
	server, index := setupWith(t, 300*time.Millisecond)
	server.SetFault(elastictest.Fault{Delay: never})
	start := time.Now()
	_, err := index.Put(t.Context(), "a", 1, doc{"PAID"})
	require.ErrorIs(t, err, elastic.ErrDown)
	assert.Less(t, time.Since(start), never)
}

func TestACallersDeadlineIsDownButItsCancellationIsNot(t *testing.T) {
	t.Parallel()
	server, index := setup(t)
	server.SetFault(elastictest.Fault{Delay: time.Minute})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := index.Put(ctx, "a", 1, doc{"PAID"})
	require.ErrorIs(t, err, elastic.ErrDown)

	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = index.Put(ctx, "a", 1, doc{"PAID"})
	require.ErrorIs(t, err, context.Canceled)
	assert.False(t, elastic.Down(err), "a shutdown says nothing about the server")
}

func TestNobodyListeningIsDown(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	_, err = connect(t, "http://"+ln.Addr().String(), time.Minute).Put(t.Context(), "a", 1, doc{"PAID"})
	require.ErrorIs(t, err, elastic.ErrDown)
}

func TestWhatIsNotElasticsearchIsDownWhateverItSays(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 400, 404, 409, 502} {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, `{"error": {"type": "document_parsing_exception"}}`)
		}))
		_, err := connect(t, proxy.URL, time.Minute).Put(t.Context(), "a", 1, doc{"PAID"})
		require.ErrorIs(t, err, elastic.ErrDown, status)
		assert.NotErrorIs(t, err, elastic.ErrDocument, status)
		proxy.Close()
	}
}

func TestOfABulkOnlyWhatMayStillPassIsSentAgain(t *testing.T) {
	t.Parallel()
	server, index := setup(t)
	items := make([]elastic.Item, 10)
	for n := range items {
		items[n] = elastic.Item{ID: fmt.Sprint(n), Version: 1, Doc: doc{"PAID"}}
	}
	items[3].Doc = map[string]string{"amount": "not a number"}
	server.SetFault(elastictest.Fault{Kind: elastictest.Reject, ID: "7", Times: 1})
	results := index.Bulk(t.Context(), items)
	for n, r := range results {
		if n == 3 {
			require.ErrorIs(t, r.Err, elastic.ErrDocument)
			assert.Equal(t, map[int]int{400: 1}, writes(server, "3"))
			continue
		}
		require.NoError(t, r.Err)
		assert.Equal(t, elastic.Applied, r.Outcome)
	}
	assert.Equal(t, map[int]int{429: 1, 201: 1}, writes(server, "7"))
	assert.Equal(t, map[int]int{201: 1}, writes(server, "8"), "a good item is written once")

	server.SetFault(elastictest.Fault{Kind: elastictest.Reject, ID: "7"})
	items[7].Version, items[8].Version = 2, 2
	results = index.Bulk(t.Context(), items[7:9])
	require.ErrorIs(t, results[0].Err, elastic.ErrDown)
	require.NoError(t, results[1].Err)
}

func TestABulkWhoseAnswerIsLostIsSentAgainAndFoundDone(t *testing.T) {
	t.Parallel()
	server, index := setup(t)
	server.SetFault(elastictest.Fault{Kind: elastictest.LoseAnswer, Times: 1})
	for _, r := range index.Bulk(t.Context(), []elastic.Item{{ID: "a", Version: 1, Doc: doc{}}, {ID: "b", Version: 1, Doc: doc{}}}) {
		require.NoError(t, r.Err)
		assert.Equal(t, elastic.Same, r.Outcome)
	}
}

func TestAFailedBulkLeavesNoItemWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	server, index := setup(t)
	server.SetFault(elastictest.Fault{Kind: elastictest.Broken})
	for _, r := range index.Bulk(t.Context(), []elastic.Item{{ID: "a", Version: 1, Doc: doc{}}, {ID: "b", Version: 1, Doc: doc{}}}) {
		require.Error(t, r.Err)
		assert.Zero(t, r.Outcome)
	}
}

func TestEveryWriteIsVersionedAndGoesThroughTheAlias(t *testing.T) {
	t.Parallel()
	server, index := setup(t)
	_, err := index.Put(t.Context(), "a", 1, doc{"PAID"})
	require.NoError(t, err)
	index.Bulk(t.Context(), []elastic.Item{{ID: "a", Version: 2, Doc: doc{"CANCELED"}}})
	seen := 0
	for _, r := range server.Requests() {
		for _, w := range r.Writes {
			seen++
			assert.Equal(t, "external", w.Type)
			assert.Equal(t, "true", r.Query.Get("require_alias"))
		}
		assert.NotContains(t, r.Path, "_update")
	}
	assert.Equal(t, 2, seen)
}

// What the versions are for: without them the last to arrive wins.
func TestWithoutAVersionAnOldFactReplacesANewOne(t *testing.T) {
	t.Parallel()
	_, url := elastictest.Start(t)
	index := connect(t, url, time.Minute)
	require.NoError(t, index.Bootstrap(t.Context()))
	_, err := index.Put(t.Context(), "a", 3, doc{"CANCELED"})
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url+"/orders/_doc/a", strings.NewReader(`{"status": "PAID"}`))
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, 200, res.StatusCode)
	got, _, err := index.Get(t.Context(), "a")
	require.NoError(t, err)
	assert.JSONEq(t, `{"status": "PAID"}`, string(got.Source), "the damage")
	assert.EqualValues(t, 4, got.Version, "and the cancellation of version 4 would now be called stale")
}

func TestTheAddressIsCheckedAndNotRepeated(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "localhost:9200", "ftp://host", "http://user:hunter2@host:1/path", "http://user:hunter2@ho st"} {
		_, err := elastic.New(elastic.Config{URL: url})
		require.Error(t, err, url)
		assert.NotContains(t, err.Error(), "hunter2")
	}
	_, err := elastic.New(elastic.Config{URL: "http://user:hunter2@localhost:9200/"})
	require.NoError(t, err)
}

func TestADefinitionThatGuessesFieldsIsRefused(t *testing.T) {
	t.Parallel()
	client, err := elastic.New(elastic.Config{URL: "http://localhost:9200"})
	require.NoError(t, err)
	for _, m := range []string{"", "{}", `{"dynamic": true}`, `{"dynamic": "strict"`} {
		_, err := client.Index(elastic.Definition{Alias: "orders", Mapping: m})
		require.Error(t, err, m)
	}
}
