package elastictest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/elastic"
)

func contractBootstrap(t *testing.T, url string) {
	b := unmade(t, url)
	var wg sync.WaitGroup
	errs := make([]error, 5)
	for n := range errs {
		wg.Go(func() { errs[n] = b.Bootstrap(t.Context()) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.NoError(t, b.Check(t.Context()))
	_, mapping := b.raw(t, "GET", "/"+b.alias+"/_mapping", "")
	require.Len(t, mapping, 1)
	assert.Contains(t, mapping, b.alias+"-1")

	outcome, err := b.Put(t.Context(), "a", 1, fields{"status": "CREATED"})
	require.NoError(t, err)
	assert.Equal(t, elastic.Applied, outcome)
	require.NoError(t, b.Bootstrap(t.Context()), "a second start leaves what is there")
	b.holds(t, "a", 1, fields{"status": "CREATED"})
}

func contractNoIndex(t *testing.T, url string) {
	b := unmade(t, url)
	require.ErrorIs(t, b.Check(t.Context()), elastic.ErrNoIndex)
	_, err := b.Put(t.Context(), "a", 1, fields{})
	require.ErrorIs(t, err, elastic.ErrNoIndex)
	assert.True(t, elastic.Down(err))
	for _, r := range b.Bulk(t.Context(), []elastic.Item{{ID: "a", Version: 1, Doc: fields{}}}) {
		require.ErrorIs(t, r.Err, elastic.ErrNoIndex)
	}
	_, _, err = b.Get(t.Context(), "a")
	require.ErrorIs(t, err, elastic.ErrNoIndex, "a missing index is not a missing document")
	_, err = b.MGet(t.Context(), []string{"a"})
	require.ErrorIs(t, err, elastic.ErrNoIndex)
	_, err = b.Search(t.Context(), elastic.Query{Sort: []elastic.Sort{{Field: "order_no"}}, Limit: 1})
	require.ErrorIs(t, err, elastic.ErrNoIndex)
	_, err = b.Count(t.Context(), elastic.Query{})
	require.ErrorIs(t, err, elastic.ErrNoIndex)
	status, _ := b.raw(t, "GET", "/"+b.alias+"/_mapping", "")
	assert.Equal(t, 404, status)

	// Gone in the middle of work: the server itself refuses, as the handle has seen a good index before.
	require.NoError(t, b.Bootstrap(t.Context()))
	_, err = b.Put(t.Context(), "a", 1, fields{})
	require.NoError(t, err)
	b.raw(t, "DELETE", "/"+b.alias+"-1", "")
	_, err = b.Put(t.Context(), "a", 2, fields{})
	require.ErrorIs(t, err, elastic.ErrNoIndex)
	status, _ = b.raw(t, "GET", "/"+b.alias+"/_mapping", "")
	assert.Equal(t, 404, status, "the write must not have made an index")
}

func contractMapping(t *testing.T, url string) {
	b := unmade(t, url)
	other := `{"dynamic": "strict", "properties": {"order_no": {"type": "text"}}}`
	status, _ := b.raw(t, "PUT", "/"+b.alias+"-1", `{"mappings": `+other+`, "aliases": {"`+b.alias+`": {}}}`)
	require.Equal(t, 200, status)
	require.ErrorIs(t, b.Bootstrap(t.Context()), elastic.ErrMapping)
	_, err := b.Put(t.Context(), "a", 1, fields{"order_no": "a"})
	require.ErrorIs(t, err, elastic.ErrMapping)
	assert.True(t, elastic.Down(err))
	_, there, err := b.Get(t.Context(), "a")
	require.NoError(t, err)
	assert.False(t, there)

	c := unmade(t, url)
	status, _ = c.raw(t, "PUT", "/"+c.alias, `{"mappings": `+testMapping+`}`)
	require.Equal(t, 200, status)
	require.ErrorIs(t, c.Bootstrap(t.Context()), elastic.ErrMapping, "an index that has the alias's name")
}

func contractVersions(t *testing.T, url string) {
	b := setup(t, url)
	for _, step := range []struct {
		version int64
		status  string
		want    elastic.Outcome
	}{
		{2, "PAID", elastic.Applied},
		{2, "OTHER", elastic.Same},
		{1, "CREATED", elastic.Stale},
		{5, "CANCELED", elastic.Applied},
		{4, "PAID", elastic.Stale},
	} {
		outcome, err := b.Put(t.Context(), "a", step.version, fields{"status": step.status})
		require.NoError(t, err)
		assert.Equal(t, step.want, outcome, "version %d", step.version)
	}
	b.holds(t, "a", 5, fields{"status": "CANCELED"})

	// The newest wins whatever the order of arrival.
	var wg sync.WaitGroup
	for v := range int64(20) {
		wg.Go(func() {
			_, err := b.Put(t.Context(), "b", v+1, fields{"amount": v + 1})
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	b.holds(t, "b", 20, fields{"amount": 20})
}

func contractTombstone(t *testing.T, url string) {
	b := setup(t, url)
	_, err := b.Put(t.Context(), "a", 3, fields{})
	require.NoError(t, err)
	doc := "/" + b.alias + "/_doc/a?version_type=external&version="
	status, body := b.raw(t, "DELETE", doc+"2", "")
	assert.Equal(t, 409, status, body)
	status, body = b.raw(t, "DELETE", doc+"5", "")
	require.Equal(t, 200, status, body)
	outcome, err := b.Put(t.Context(), "a", 4, fields{})
	require.NoError(t, err)
	assert.Equal(t, elastic.Stale, outcome, "the tombstone is newer")
	_, there, err := b.Get(t.Context(), "a")
	require.NoError(t, err)
	assert.False(t, there)
	outcome, err = b.Put(t.Context(), "a", 6, fields{})
	require.NoError(t, err)
	assert.Equal(t, elastic.Applied, outcome, "a newer write brings it back")

	status, body = b.raw(t, "PUT", "/"+b.alias+"/_doc/a", "{}")
	assert.Equal(t, 200, status)
	assert.EqualValues(t, 7, body["_version"], "an unversioned write counts on; this is why nobody may make one")
}

// The texts of errors hold nothing of a document; this stands in all that are refused.
const secret = "s3cret-value"

func contractDocuments(t *testing.T, url string) {
	b := setup(t, url)
	version := int64(0)
	for name, doc := range map[string]fields{
		"a field that nobody planned": {"phone": secret},
		"text in a number":            {"amount": secret},
		"a boolean in a number":       {"amount": true, "status": secret},
		"an object in a number":       {"amount": fields{"a": secret}},
		"a number too large":          {"amount": 1e30, "status": secret},
		"an object in a keyword":      {"status": fields{"a": secret}},
		"an object in a text":         {"title": fields{"a": secret}},
		"no date":                     {"created_at": secret},
		"a day that does not exist":   {"created_at": "2026-02-30T00:00:00Z", "status": secret},
		"a date before 1970":          {"created_at": "1960-01-01T00:00:00Z", "status": secret},
		"an immense keyword":          {"status": strings.Repeat(secret, 3000)},
	} {
		version++
		_, err := b.Put(t.Context(), "bad", version, doc)
		require.ErrorIs(t, err, elastic.ErrDocument, name)
		assert.False(t, elastic.Down(err), name)
		assert.NotContains(t, err.Error(), secret, name)
	}
	for name, doc := range map[string]fields{
		"nothing":              {},
		"null":                 {"amount": nil, "title": nil, "created_at": nil},
		"a number as text":     {"amount": "12"},
		"a fraction":           {"amount": 1.5},
		"a number in a text":   {"title": 7},
		"a boolean in keyword": {"status": true},
		"several values":       {"status": []string{"b", "a"}, "amount": []int{1, 2}},
		"the largest long":     {"amount": int64(9223372036854775807)},
		"milliseconds":         {"created_at": 1795984866699},
		"a date alone":         {"created_at": "2026-11-29"},
		"an offset":            {"created_at": "2026-11-29T21:41:06.123456789+01:00"},
	} {
		version++
		outcome, err := b.Put(t.Context(), "good", version, doc)
		require.NoError(t, err, name)
		assert.Equal(t, elastic.Applied, outcome, name)
	}
	for name, id := range map[string]string{"empty": "", "too long": strings.Repeat("x", 513), "a dot": "."} {
		_, err := b.Put(t.Context(), id, 1, fields{})
		require.ErrorIs(t, err, elastic.ErrDocument, name)
	}
	for _, v := range []int64{0, -1} {
		_, err := b.Put(t.Context(), "a", v, fields{})
		require.ErrorIs(t, err, elastic.ErrDocument, "version %d", v)
	}
	_, there, err := b.Get(t.Context(), "bad")
	require.NoError(t, err)
	assert.False(t, there)
}

func contractBlame(t *testing.T, url string) {
	b := setup(t, url)
	good := fields{"status": "PAID"}
	_, err := b.Put(t.Context(), "a", 1, good)
	require.NoError(t, err)
	b.raw(t, "DELETE", "/"+b.alias+"-1", "")
	status, _ := b.raw(t, "PUT", "/"+b.alias+"-1",
		`{"mappings": {"dynamic": "strict", "properties": {"order_no": {"type": "keyword"}}}, "aliases": {"`+b.alias+`": {}}}`)
	require.Equal(t, 200, status)
	_, err = b.Put(t.Context(), "a", 2, good)
	require.ErrorIs(t, err, elastic.ErrMapping)
	assert.NotErrorIs(t, err, elastic.ErrDocument)

	// The same for an alias that leads to two indices, which the server also answers with 400.
	c := setup(t, url)
	_, err = c.Put(t.Context(), "a", 1, good)
	require.NoError(t, err)
	c.raw(t, "PUT", "/"+c.alias+"-2", `{"mappings": `+testMapping+`, "aliases": {"`+c.alias+`": {}}}`)
	_, err = c.Put(t.Context(), "a", 2, good)
	require.ErrorIs(t, err, elastic.ErrMapping)
}

func contractBlocks(t *testing.T, url string) {
	b := setup(t, url)
	for n, block := range []string{"index.blocks.write", "index.blocks.read_only_allow_delete"} {
		set := func(value string) {
			status, body := b.raw(t, "PUT", "/"+b.alias+"/_settings", fmt.Sprintf(`{%q: %s}`, block, value))
			require.Equal(t, 200, status, body)
		}
		set("true")
		_, err := b.Put(t.Context(), "a", int64(n+1), fields{})
		require.ErrorIs(t, err, elastic.ErrDown, block)
		for _, r := range b.Bulk(t.Context(), []elastic.Item{{ID: "a", Version: int64(n + 1), Doc: fields{}}}) {
			require.ErrorIs(t, r.Err, elastic.ErrDown, block)
		}
		set("null")
		outcome, err := b.Put(t.Context(), "a", int64(n+1), fields{})
		require.NoError(t, err)
		assert.Equal(t, elastic.Applied, outcome)
	}
}

func contractBulk(t *testing.T, url string) {
	b := setup(t, url)
	_, err := b.Put(t.Context(), "newer", 9, fields{"status": "PAID"})
	require.NoError(t, err)
	results := b.Bulk(t.Context(), []elastic.Item{
		{ID: "a", Version: 1, Doc: fields{"status": "CREATED"}},
		{ID: "bad", Version: 1, Doc: fields{"amount": secret}},
		{ID: "newer", Version: 8, Doc: fields{"status": "CREATED"}},
		{ID: "newer", Version: 9, Doc: fields{"status": "PAID"}},
		{ID: strings.Repeat("x", 513), Version: 1, Doc: fields{}},
		{ID: "a", Version: 2, Doc: fields{"status": "PAID", "title": "two\nlines"}},
		{ID: "b", Version: 0, Doc: fields{}},
		{ID: "c/ü?#%", Version: 1, Doc: fields{}},
		{ID: "d", Version: 1, Doc: make(chan int)},
	})
	require.Len(t, results, 9)
	for n, want := range map[int]elastic.Outcome{
		0: elastic.Applied, 2: elastic.Stale, 3: elastic.Same, 5: elastic.Applied, 7: elastic.Applied,
	} {
		require.NoError(t, results[n].Err, n)
		assert.Equal(t, want, results[n].Outcome, n)
	}
	for _, n := range []int{1, 4, 6, 8} {
		require.ErrorIs(t, results[n].Err, elastic.ErrDocument, n)
		assert.NotContains(t, results[n].Err.Error(), secret)
	}
	b.holds(t, "a", 2, fields{"status": "PAID", "title": "two\nlines"})
	b.holds(t, "newer", 9, fields{"status": "PAID"})
	assert.Empty(t, b.Bulk(t.Context(), nil))

	// One item whose form is wrong fails them all: the reason why the client looks before it sends.
	status, body := b.raw(t, "POST", "/"+b.alias+"/_bulk", ndjson(
		fields{"index": fields{"_id": "e", "version": 1, "version_type": "external"}}, fields{},
		fields{"index": fields{"_id": strings.Repeat("x", 513), "version": 1, "version_type": "external"}}, fields{}))
	assert.Equal(t, 400, status, body)
	_, there, err := b.Get(t.Context(), "e")
	require.NoError(t, err)
	assert.False(t, there)
}

func contractReads(t *testing.T, url string) {
	b := setup(t, url)
	for _, id := range []string{"a", "a/b c?%ü#", "..."} {
		_, err := b.Put(t.Context(), id, 7, fields{"order_no": id, "title": "<b> & \u2028"})
		require.NoError(t, err)
		b.holds(t, id, 7, fields{"order_no": id, "title": "<b> & \u2028"})
	}
	_, there, err := b.Get(t.Context(), "none")
	require.NoError(t, err)
	assert.False(t, there)

	docs, err := b.MGet(t.Context(), []string{"a", "none", "a/b c?%ü#", "a"})
	require.NoError(t, err)
	require.Len(t, docs, 2)
	assert.EqualValues(t, 7, docs["a/b c?%ü#"].Version)
	assert.JSONEq(t, `{"order_no": "a", "title": "<b> & \u2028"}`, string(docs["a"].Source))
	docs, err = b.MGet(t.Context(), nil)
	require.NoError(t, err)
	assert.Empty(t, docs)
}
