package elastictest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/elastic"
)

func contractRefresh(t *testing.T, url string) {
	b := setup(t, url) // never refreshes by itself
	_, err := b.Put(t.Context(), "a", 1, fields{"order_no": "a", "status": "CREATED"})
	require.NoError(t, err)
	ids, page := b.search(t, elastic.Query{})
	assert.Empty(t, ids)
	assert.Zero(t, page.Total)
	n, err := b.Count(t.Context(), elastic.Query{})
	require.NoError(t, err)
	assert.Zero(t, n)
	require.NoError(t, b.Refresh(t.Context()))
	ids, _ = b.search(t, elastic.Query{})
	assert.Equal(t, []string{"a"}, ids)

	_, err = b.Put(t.Context(), "a", 2, fields{"order_no": "a", "status": "PAID"})
	require.NoError(t, err)
	ids, page = b.search(t, elastic.Query{Term: map[string]string{"status": "CREATED"}})
	assert.Equal(t, []string{"a"}, ids, "the old state is what searches see")
	assert.EqualValues(t, 1, page.Hits[0].Version)

	c := unmade(t, url)
	index, err := c.client.Index(elastic.Definition{Alias: c.alias, Mapping: testMapping})
	require.NoError(t, err)
	require.NoError(t, index.Bootstrap(t.Context()))
	_, err = index.Put(t.Context(), "a", 1, fields{})
	require.NoError(t, err)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		n, err := index.Count(context.Background(), elastic.Query{})
		assert.NoError(t, err)
		assert.EqualValues(t, 1, n)
	}, time.Minute, 100*time.Millisecond, "the default is to refresh every second")
}

func contractConditions(t *testing.T, url string) {
	b := setup(t, url)
	at := func(day int) string { return fmt.Sprintf("2026-11-%02dT10:00:00Z", day) }
	b.fill(t, map[string]fields{
		"a": {"user_id": "u1", "title": "Blue chair", "status": "PAID", "amount": 5, "created_at": at(1)},
		"b": {"user_id": "u1", "title": "Green chair", "status": "CREATED", "created_at": at(2)},
		"c": {"user_id": "u2", "title": "Blue sofa, with a green chair", "status": "PAID", "created_at": at(3)},
		"d": {"user_id": "u2", "status": []string{"PAID", "paid"}},
	})
	day := func(n int) time.Time { return time.Date(2026, 11, n, 10, 0, 0, 0, time.UTC) }
	between := func(from, to time.Time) map[string]elastic.Range {
		return map[string]elastic.Range{"created_at": {From: from, To: to}}
	}
	for name, c := range map[string]struct {
		q    elastic.Query
		want []string
	}{
		"all":                      {elastic.Query{}, []string{"a", "b", "c", "d"}},
		"a word":                   {elastic.Query{Match: map[string]string{"title": "BLUE"}}, []string{"a", "c"}},
		"two words, in any order":  {elastic.Query{Match: map[string]string{"title": "chair blue"}}, []string{"a", "c"}},
		"half a word":              {elastic.Query{Match: map[string]string{"title": "chai"}}, nil},
		"no word at all":           {elastic.Query{Match: map[string]string{"title": "?!"}}, nil},
		"an exact value":           {elastic.Query{Term: map[string]string{"status": "PAID"}}, []string{"a", "c", "d"}},
		"an exact value, case too": {elastic.Query{Term: map[string]string{"status": "paid"}}, []string{"d"}},
		"two exact values":         {elastic.Query{Term: map[string]string{"status": "PAID", "user_id": "u2"}}, []string{"c", "d"}},
		"from, inclusive":          {elastic.Query{Range: between(day(2), time.Time{})}, []string{"b", "c"}},
		"to, exclusive":            {elastic.Query{Range: between(time.Time{}, day(2))}, []string{"a"}},
		"both":                     {elastic.Query{Range: between(day(1), day(3))}, []string{"a", "b"}},
		"no time":                  {elastic.Query{Range: between(day(3), day(3))}, nil},
		"beyond what dates can be": {elastic.Query{Range: between(time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))}, []string{"a", "b", "c"}},
		"everything together": {elastic.Query{Match: map[string]string{"title": "chair"}, Range: between(day(1), day(3)),
			Term: map[string]string{"status": "CREATED", "user_id": "u1"}}, []string{"b"}},
		"a field that is not there": {elastic.Query{Term: map[string]string{"nothing": "x"}}, nil},
	} {
		ids, page := b.search(t, c.q)
		assert.Equal(t, c.want, ids, name)
		assert.EqualValues(t, len(c.want), page.Total, name)
		n, err := b.Count(t.Context(), c.q)
		require.NoError(t, err)
		assert.EqualValues(t, len(c.want), n, name)
	}
	_, page := b.search(t, elastic.Query{Term: map[string]string{"user_id": "u1"}})
	assert.JSONEq(t, `{"order_no": "a", "user_id": "u1", "title": "Blue chair", "status": "PAID", "amount": 5,
		"created_at": "2026-11-01T10:00:00Z"}`, string(page.Hits[0].Source))
	assert.EqualValues(t, 1, page.Hits[0].Version)
}

func contractWords(t *testing.T, url string) {
	b := setup(t, url)
	titles := map[string]string{
		"a": "Don't panic: it's 3.14, or 1,000 EUR", "b": "wi-fi e_mail foo.bar@example.com", "c": "ÄRGER straße Σίσυφος ЁЖ",
		"d": "東京タワー の写真", "e": "cafe\u0301 naïve", "f": "🪑 chair™ 2x4", "g": "", "h": "x.1 a.b. ... ___ v1.2",
	}
	docs := map[string]fields{}
	for id, title := range titles {
		docs[id] = fields{"title": title}
	}
	b.fill(t, docs)
	for query, want := range map[string][]string{
		"don't": {"a"}, "don": nil, "panic:": {"a"}, "3.14": {"a"}, "14": nil, "1,000": {"a"}, "1": {"h"}, "000": nil,
		"wi": {"b"}, "wi-fi": {"b"}, "wifi": nil, "e_mail": {"b"}, "mail": nil, "foo.bar": {"b"}, "foo": nil, "example.com": {"b"},
		"ärger": {"c"}, "arger": nil, "STRASSE": nil, "Straße": {"c"}, "σίσυφος": {"c"}, "ёж": {"c"},
		"京": {"d"}, "東京": {"d"}, "京東": {"d"}, "タワー": {"d"}, "タワ": nil, "の": {"d"},
		"café": nil, "cafe\u0301": {"e"}, "naïve": {"e"}, "🪑": {"f"}, "chair": {"f"}, "2x4": {"f"}, "2": nil,
		"x": {"h"}, "a.b": {"h"}, "___": nil, "v1.2": {"h"}, "v1": nil, "": nil,
	} {
		ids, _ := b.search(t, elastic.Query{Match: map[string]string{"title": query}})
		assert.Equal(t, want, ids, "%q", query)
	}
}

func contractTimes(t *testing.T, url string) {
	b := setup(t, url)
	base := time.Date(2026, 11, 29, 20, 41, 6, 699123000, time.UTC)
	docs := map[string]fields{"none": {}}
	for n := range 3 {
		docs[fmt.Sprint(n)] = fields{"created_at": base.Add(time.Duration(n) * time.Microsecond)}
	}
	b.fill(t, docs)
	ids, page := b.search(t, elastic.Query{Sort: []elastic.Sort{{Field: "created_at", Desc: true}, {Field: "order_no"}}})
	assert.Equal(t, []string{"2", "1", "0", "none"}, ids, "newest first, and last what has no time")
	assert.Equal(t, fmt.Sprint(base.UnixNano()), string(page.Hits[2].Sort[0]))
	assert.Equal(t, "0", string(page.Hits[3].Sort[0]))
	ids, _ = b.search(t, elastic.Query{Sort: []elastic.Sort{{Field: "created_at"}, {Field: "order_no"}}})
	assert.Equal(t, []string{"0", "1", "2", "none"}, ids)
	ids, _ = b.search(t, elastic.Query{Range: map[string]elastic.Range{
		"created_at": {From: base.Add(time.Microsecond), To: base.Add(2 * time.Microsecond)}}})
	assert.Equal(t, []string{"1"}, ids)
}

func contractPages(t *testing.T, url string) {
	b := setup(t, url)
	docs := map[string]fields{}
	for n := range 23 { // five share a time, so that the second field must decide
		docs[fmt.Sprintf("o%02d", n)] = fields{"created_at": time.Date(2026, 1, 1, 0, 0, n/5, 0, time.UTC), "status": "PAID"}
	}
	b.fill(t, docs)
	q := elastic.Query{
		Term: map[string]string{"status": "PAID"}, Limit: 4,
		Sort: []elastic.Sort{{Field: "created_at", Desc: true}, {Field: "order_no"}},
	}
	var all []string
	for {
		ids, page := b.search(t, q)
		assert.EqualValues(t, 23, page.Total, "the total is that of all pages")
		if len(ids) == 0 {
			break
		}
		all = append(all, ids...)
		q.After = page.Hits[len(page.Hits)-1].Sort
	}
	require.Len(t, all, 23)
	assert.Equal(t, []string{"o20", "o21", "o22", "o15", "o16"}, all[:5])
	assert.Equal(t, "o04", all[22])

	q.After = nil
	_, first := b.search(t, q)
	_, err := b.Put(t.Context(), "o99", 1, fields{"order_no": "o99", "status": "PAID", "created_at": "2026-02-01T00:00:00Z"})
	require.NoError(t, err)
	require.NoError(t, b.Refresh(t.Context()))
	q.After = first.Hits[3].Sort
	ids, _ := b.search(t, q)
	assert.Equal(t, []string{"o16", "o17", "o18", "o19"}, ids, "a newer document does not shift the following pages")
}

func contractBadSearch(t *testing.T, url string) {
	b := setup(t, url)
	b.fill(t, map[string]fields{"a": {"created_at": "2026-01-01T00:00:00Z"}})
	order := []elastic.Sort{{Field: "created_at", Desc: true}, {Field: "order_no"}}
	raw := func(values ...string) (after []json.RawMessage) {
		for _, v := range values {
			after = append(after, json.RawMessage(v))
		}
		return after
	}
	for name, q := range map[string]elastic.Query{
		"sorted by nothing known": {Limit: 1, Sort: []elastic.Sort{{Field: "nothing"}}},
		"sorted by a text":        {Limit: 1, Sort: []elastic.Sort{{Field: "title"}}},
		"too few values":          {Limit: 1, Sort: order, After: raw("1")},
		"a value of another kind": {Limit: 1, Sort: order, After: raw(`"x"`, `"a"`)},
		"too large a page":        {Limit: 10_001, Sort: order},
	} {
		_, err := b.Search(t.Context(), q)
		var refused *elastic.Error
		require.ErrorAs(t, err, &refused, name)
		assert.Equal(t, 400, refused.Status, name)
		assert.False(t, elastic.Down(err), name)
	}
}

func contractRebuild(t *testing.T, url string) {
	b := setup(t, url)
	b.fill(t, map[string]fields{"a": {"status": "CREATED"}, "b": {"status": "CREATED"}})
	source := map[string]int64{"a": 1, "b": 1}
	write := func(ctx context.Context, to *elastic.Index, id string, version int64) error {
		_, err := to.Put(ctx, id, version, fields{"order_no": id, "amount": version})
		return err
	}
	round := 0
	err := b.Rebuild(t.Context(), func(ctx context.Context, target *elastic.Index) error {
		round++
		for id, version := range source {
			if err := write(ctx, target, id, version); err != nil {
				return err
			}
		}
		if round == 1 { // meanwhile life goes on, in the old index
			ids, _ := b.search(t, elastic.Query{})
			assert.Equal(t, []string{"a", "b"}, ids)
			source["a"], source["c"] = 2, 1
			return errors.Join(write(ctx, b.Index, "a", 2), write(ctx, b.Index, "c", 1))
		}
		ids, _ := b.search(t, elastic.Query{})
		assert.Equal(t, []string{"a", "b"}, ids, "the moved alias leads to a filled index")
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, 2, round)
	b.holds(t, "a", 2, fields{"order_no": "a", "amount": 2})
	b.holds(t, "c", 1, fields{"order_no": "c", "amount": 1})
	_, aliases := b.raw(t, "GET", "/"+b.alias+"/_alias", "")
	assert.Equal(t, map[string]any{b.alias + "-2": map[string]any{"aliases": map[string]any{b.alias: map[string]any{}}}}, aliases)
	status, _ := b.raw(t, "GET", "/"+b.alias+"-1/_mapping", "")
	assert.Equal(t, 404, status, "the old index is gone")

	// Interrupted before the move, nothing has changed; the next run starts over.
	failed := errors.New("killed half way")
	err = b.Rebuild(t.Context(), func(ctx context.Context, target *elastic.Index) error {
		return errors.Join(write(ctx, target, "leftover", 1), failed)
	})
	require.ErrorIs(t, err, failed)
	b.holds(t, "a", 2, fields{"order_no": "a", "amount": 2})
	require.NoError(t, b.Rebuild(t.Context(), func(ctx context.Context, target *elastic.Index) error {
		return write(ctx, target, "a", 2)
	}))
	_, there, err := b.Get(t.Context(), "leftover")
	require.NoError(t, err)
	assert.False(t, there)
}

func contractAliases(t *testing.T, url string) {
	b := setup(t, url)
	b.raw(t, "PUT", "/"+b.alias+"-2", `{"mappings": `+testMapping+`}`)
	move := func(from string, must bool) int {
		status, _ := b.raw(t, "POST", "/_aliases", fmt.Sprintf(`{"actions": [
			{"remove": {"index": %q, "alias": %q, "must_exist": %t}}, {"add": {"index": %q, "alias": %q}}]}`,
			from, b.alias, must, b.alias+"-2", b.alias))
		return status
	}
	leadsTo := func() int {
		_, found := b.raw(t, "GET", "/"+b.alias+"/_mapping", "")
		return len(found)
	}
	assert.Equal(t, 404, move(b.alias+"-9", true), "no such index")
	assert.Equal(t, 404, move(b.alias+"-2", true), "the alias does not lead there")
	assert.Equal(t, 1, leadsTo())
	assert.Equal(t, 200, move(b.alias+"-2", false), "without must_exist half of it happens")
	assert.Equal(t, 2, leadsTo())
	assert.Equal(t, 200, move(b.alias+"-1", true))
	assert.Equal(t, 1, leadsTo())
}
