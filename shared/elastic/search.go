package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"
)

// Query selects documents: every condition must hold. A search sees writes after the next refresh.
type Query struct {
	Match map[string]string // text field → words; all of them occur, in any order and case
	Term  map[string]string // keyword field → exact value
	Range map[string]Range  // date_nanos field → bounds
	Sort  []Sort            // the last field must be unique, or paging skips and repeats
	Limit int               // documents on a page, up to 10,000
	After []json.RawMessage // Hit.Sort of the last hit of the page before
}

// Range holds from From, inclusive, to To, exclusive; a zero time is no bound. Times that a date_nanos field cannot
// hold are taken as the nearest one that it can.
type Range struct{ From, To time.Time }

// Sort orders by one field.
type Sort struct {
	Field string
	Desc  bool
}

// Page is one page of hits. Total counts all documents that match, exactly.
type Page struct {
	Hits  []Hit
	Total int64
}

// Hit is one document found. Sort is kept as it came, since its numbers do not fit a float64.
type Hit struct {
	Document
	Sort []json.RawMessage `json:"sort"`
}

// Search returns the page after q.After. An answer that lacks a shard's part, or that ran out of time, is ErrDown and
// never a short page.
func (i *Index) Search(ctx context.Context, q Query) (Page, error) {
	order := make([]map[string]any, len(q.Sort))
	for n, s := range q.Sort {
		order[n] = map[string]any{s.Field: map[string]any{"order": map[bool]string{false: "asc", true: "desc"}[s.Desc]}}
	}
	request := map[string]any{
		"query": q.conditions(), "sort": order, "size": q.Limit, "version": true, "track_total_hits": true,
	}
	if len(q.After) > 0 {
		request["search_after"] = q.After
	}
	var answer struct {
		TimedOut bool `json:"timed_out"`
		Hits     struct {
			Total struct{ Value int64 }
			Hits  []Hit
		}
	}
	err := i.query(ctx, request, func(b io.Reader) esapi.Request {
		return esapi.SearchRequest{Index: []string{i.def.Alias}, Body: b, AllowPartialSearchResults: ptr(false)}
	}, &answer)
	if err == nil && answer.TimedOut {
		err = fmt.Errorf("%w: the search ran out of time", ErrDown)
	}
	if err != nil {
		return Page{}, fmt.Errorf("searching %s: %w", i.def.Alias, err)
	}
	return Page{Hits: answer.Hits.Hits, Total: answer.Hits.Total.Value}, nil
}

// Count returns how many documents match; Sort, Limit and After do not matter.
func (i *Index) Count(ctx context.Context, q Query) (int64, error) {
	var answer struct {
		Count  int64
		Shards struct{ Failed int } `json:"_shards"`
	}
	err := i.query(ctx, map[string]any{"query": q.conditions()}, func(b io.Reader) esapi.Request {
		return esapi.CountRequest{Index: []string{i.def.Alias}, Body: b}
	}, &answer)
	if err == nil && answer.Shards.Failed > 0 {
		err = fmt.Errorf("%w: %d shards did not count", ErrDown, answer.Shards.Failed)
	}
	if err != nil {
		return 0, fmt.Errorf("counting in %s: %w", i.def.Alias, err)
	}
	return answer.Count, nil
}

func (i *Index) query(ctx context.Context, request any, build func(io.Reader) esapi.Request, out any) error {
	var body bytes.Buffer
	if err := json.NewEncoder(&body).Encode(request); err != nil {
		return err
	}
	return i.client.call(ctx, body.Bytes(), build, out)
}

func (q Query) conditions() map[string]any {
	must, filter := []any{}, []any{}
	for field, words := range q.Match {
		must = append(must, map[string]any{"match": map[string]any{field: map[string]any{"query": words, "operator": "and"}}})
	}
	for field, value := range q.Term {
		filter = append(filter, map[string]any{"term": map[string]any{field: value}})
	}
	for field, r := range q.Range {
		bounds := map[string]any{}
		if !r.From.IsZero() {
			bounds["gte"] = storable(r.From)
		}
		if !r.To.IsZero() {
			bounds["lt"] = storable(r.To)
		}
		filter = append(filter, map[string]any{"range": map[string]any{field: bounds}})
	}
	return map[string]any{"bool": map[string]any{"must": must, "filter": filter}}
}

// storable keeps a bound within what date_nanos can hold; the server answers 400 to any other.
func storable(t time.Time) string {
	first, last := time.Unix(0, 0), time.Date(2262, 4, 11, 0, 0, 0, 0, time.UTC)
	switch {
	case t.Before(first):
		t = first
	case t.After(last):
		t = last
	}
	return t.UTC().Format(time.RFC3339Nano)
}
