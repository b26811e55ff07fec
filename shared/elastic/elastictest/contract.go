package elastictest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/elastic"
)

// Contract is what package elastic and its users rely on. It passes against the stand-in and against Elasticsearch 8.19
// alike. It makes indices of its own on the server at url and removes them.
func Contract(t *testing.T, url string) {
	t.Run("an index is made once, by any number of starters", func(t *testing.T) { contractBootstrap(t, url) })
	t.Run("without its index nothing is written and nothing created", func(t *testing.T) { contractNoIndex(t, url) })
	t.Run("an index with another mapping is refused and left alone", func(t *testing.T) { contractMapping(t, url) })
	t.Run("a newer version is applied, the same and older ones change nothing", func(t *testing.T) { contractVersions(t, url) })
	t.Run("a deleted document keeps its version for a while", func(t *testing.T) { contractTombstone(t, url) })
	t.Run("a document that does not fit is refused, others are not", func(t *testing.T) { contractDocuments(t, url) })
	t.Run("a good document is not blamed for a changed index", func(t *testing.T) { contractBlame(t, url) })
	t.Run("a blocked index is down, not a bad document", func(t *testing.T) { contractBlocks(t, url) })
	t.Run("each bulk item has an outcome of its own", func(t *testing.T) { contractBulk(t, url) })
	t.Run("reads by id see a write at once", func(t *testing.T) { contractReads(t, url) })
	t.Run("searches see a write after a refresh", func(t *testing.T) { contractRefresh(t, url) })
	t.Run("a search combines its conditions", func(t *testing.T) { contractConditions(t, url) })
	t.Run("words are found as the standard analyzer splits them", func(t *testing.T) { contractWords(t, url) })
	t.Run("times are exact to the nanosecond", func(t *testing.T) { contractTimes(t, url) })
	t.Run("pages follow each other without gap or repetition", func(t *testing.T) { contractPages(t, url) })
	t.Run("a search that cannot be carried out is an error", func(t *testing.T) { contractBadSearch(t, url) })
	t.Run("a rebuild loses no write and is never seen half done", func(t *testing.T) { contractRebuild(t, url) })
	t.Run("alias actions happen together or not at all", func(t *testing.T) { contractAliases(t, url) })
	t.Run("every answer names the product", func(t *testing.T) { contractProduct(t, url) })
}

// testMapping has each type that the stand-in knows.
const testMapping = `{"dynamic": "strict", "properties": {
	"order_no": {"type": "keyword"}, "user_id": {"type": "keyword"}, "title": {"type": "text"},
	"amount": {"type": "long"}, "status": {"type": "keyword"}, "created_at": {"type": "date_nanos"}}}`

// fields is a document by hand.
type fields map[string]any

// bench is one index of its own on the server under test.
type bench struct {
	*elastic.Index
	client *elastic.Client
	url    string
	alias  string
}

func setup(t *testing.T, url string) bench {
	b := unmade(t, url)
	require.NoError(t, b.Bootstrap(t.Context()))
	return b
}

// unmade is a bench whose index does not exist yet. Searches see its writes only after Refresh.
func unmade(t *testing.T, url string) bench {
	client, err := elastic.New(elastic.Config{URL: url, Timeout: time.Minute})
	require.NoError(t, err)
	b := bench{client: client, url: url, alias: "contract-" + uuid.NewString()}
	b.Index, err = client.Index(elastic.Definition{Alias: b.alias, Mapping: testMapping, Refresh: "-1"})
	require.NoError(t, err)
	t.Cleanup(func() {
		defer client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, name := range []string{b.alias, b.alias + "-1", b.alias + "-2", b.alias + "-3"} {
			if res, err := b.ask(ctx, http.MethodDelete, "/"+name, ""); err == nil {
				_ = res.Body.Close()
			}
		}
	})
	return b
}

// raw sends what the client never would, and returns the status and the decoded body.
func (b bench) raw(t *testing.T, method, path, body string) (int, map[string]any) {
	t.Helper()
	res, err := b.ask(t.Context(), method, path, body)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	var decoded map[string]any
	require.NoError(t, json.Unmarshal(text, &decoded), "%s %s: %s", method, path, text)
	return res.StatusCode, decoded
}

func (b bench) ask(ctx context.Context, method, path, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, b.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(req)
}

// fill writes documents at version 1, each with its id as order_no, and makes them visible.
func (b bench) fill(t *testing.T, docs map[string]fields) {
	t.Helper()
	for id, doc := range docs {
		doc["order_no"] = id
		outcome, err := b.Put(t.Context(), id, 1, doc)
		require.NoError(t, err)
		require.Equal(t, elastic.Applied, outcome)
	}
	require.NoError(t, b.Refresh(t.Context()))
}

func (b bench) search(t *testing.T, q elastic.Query) (ids []string, page elastic.Page) {
	t.Helper()
	if len(q.Sort) == 0 {
		q.Sort = []elastic.Sort{{Field: "order_no"}}
	}
	if q.Limit == 0 {
		q.Limit = 100
	}
	page, err := b.Search(t.Context(), q)
	require.NoError(t, err)
	for _, hit := range page.Hits {
		ids = append(ids, hit.ID)
	}
	return ids, page
}

func (b bench) holds(t *testing.T, id string, version int64, want fields) {
	t.Helper()
	doc, ok, err := b.Get(t.Context(), id)
	require.NoError(t, err)
	require.True(t, ok, "%s is not there", id)
	assert.Equal(t, version, doc.Version)
	text, err := json.Marshal(want)
	require.NoError(t, err)
	assert.JSONEq(t, string(text), string(doc.Source))
}

func contractProduct(t *testing.T, url string) {
	b := setup(t, url)
	require.NoError(t, b.client.Health(t.Context()))
	for _, path := range []string{"/_cluster/health", "/" + b.alias + "/_doc/none", "/nothing-here/_mapping"} {
		res, err := b.ask(t.Context(), "GET", path, "")
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		assert.Equal(t, "Elasticsearch", res.Header.Get("X-Elastic-Product"), "%s answered %d", path, res.StatusCode)
	}
}

func ndjson(lines ...any) string {
	var out bytes.Buffer
	for _, line := range lines {
		text, err := json.Marshal(line)
		if err != nil {
			panic(fmt.Sprintf("a line of the test itself: %v", err))
		}
		out.Write(append(text, '\n'))
	}
	return out.String()
}
