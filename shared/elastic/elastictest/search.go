package elastictest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// searchRequest is what elastic.Search sends.
type searchRequest struct {
	Query       json.RawMessage         `json:"query"`
	Sort        []map[string]*sortOrder `json:"sort"`
	Size        *int                    `json:"size"`
	Version     bool                    `json:"version"`
	TrackTotal  bool                    `json:"track_total_hits"`
	SearchAfter []json.RawMessage       `json:"search_after"`
}

type sortOrder struct {
	Order string `json:"order"`
}

// queryError is a search that cannot be carried out.
type queryError struct {
	status       int
	kind, reason string
}

func (e *queryError) Error() string { return e.reason }

func badQuery(kind, format string, args ...any) *queryError {
	return &queryError{400, kind, fmt.Sprintf(format, args...)}
}

func (s *Server) search(name string, body []byte) answer {
	found := s.named(name)
	if len(found) == 0 {
		return noIndex(name)
	}
	if len(found) > 1 {
		return unsupported("a search over several indices")
	}
	var request searchRequest
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&request); err != nil {
		return unsupported("this search: " + err.Error())
	}
	hits, total, err := found[0].find(request)
	if err != nil {
		a := refuse(err.status, err.kind, err.reason)
		if err.status == 400 { // the reason stands below the phase, as in Elasticsearch
			e := a.body.(map[string]any)["error"].(map[string]any)
			e["type"], e["reason"] = "search_phase_execution_exception", "all shards failed"
		}
		return a
	}
	return answer{200, map[string]any{
		"took": 0, "timed_out": false, "_shards": shards(1),
		"hits": map[string]any{
			"total": map[string]any{"value": total, "relation": "eq"}, "max_score": nil, "hits": hits,
		},
	}}
}

func (s *Server) count(name string, body []byte) answer {
	found := s.named(name)
	if len(found) == 0 {
		return noIndex(name)
	}
	var request struct {
		Query json.RawMessage `json:"query"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return refuse(400, "parsing_exception", err.Error())
	}
	total := 0
	for _, ix := range found {
		docs, err := ix.matching(request.Query)
		if err != nil {
			return refuse(err.status, err.kind, err.reason)
		}
		total += len(docs)
	}
	return answer{200, map[string]any{"count": total, "_shards": shards(len(found))}}
}

func (ix *index) matching(query json.RawMessage) ([]*document, *queryError) {
	ix.due(time.Now())
	match, err := ix.condition(query)
	if err != nil {
		return nil, err
	}
	var docs []*document
	for _, doc := range ix.visible {
		if match(doc) {
			docs = append(docs, doc)
		}
	}
	return docs, nil
}

func (ix *index) find(request searchRequest) ([]any, int, *queryError) {
	docs, err := ix.matching(request.Query)
	if err != nil {
		return nil, 0, err
	}
	keys, err := ix.sortKeys(request.Sort)
	if err != nil {
		return nil, 0, err
	}
	rows := make([]row, len(docs))
	for n, doc := range docs {
		rows[n] = row{doc, keys.of(doc)}
	}
	slices.SortFunc(rows, func(a, b row) int { return keys.compare(a.values, b.values) })
	if len(request.SearchAfter) > 0 {
		after, err := keys.read(request.SearchAfter)
		if err != nil {
			return nil, 0, err
		}
		first, _ := slices.BinarySearchFunc(rows, after, func(r row, after []any) int {
			if keys.compare(r.values, after) <= 0 {
				return -1
			}
			return 1
		})
		rows = rows[first:]
	}
	size := 10
	if request.Size != nil {
		size = *request.Size
	}
	if size > 10_000 {
		return nil, 0, badQuery("illegal_argument_exception", "Result window is too large, from + size must be less than or equal to: [10000] but was [%d].", size)
	}
	hits := []any{}
	for _, r := range rows[:min(size, len(rows))] {
		hit := map[string]any{"_index": ix.name, "_id": r.doc.id, "_score": nil, "_source": r.doc.source, "sort": r.values}
		if request.Version {
			hit["_version"] = r.doc.version
		}
		hits = append(hits, hit)
	}
	return hits, len(docs), nil
}

// row is a document with its sort values: int64, string, or nil for a keyword that is not there.
type row struct {
	doc    *document
	values []any
}

type sortKey struct {
	field string
	kind  string
	desc  bool
}

type sortKeys []sortKey

func (ix *index) sortKeys(order []map[string]*sortOrder) (sortKeys, *queryError) {
	var keys sortKeys
	for _, part := range order {
		for field, o := range part {
			f, known := ix.mapping.Properties[field]
			switch {
			case !known:
				return nil, badQuery("query_shard_exception", "No mapping found for [%s] in order to sort on", field)
			case f.Type == "text":
				return nil, badQuery("illegal_argument_exception", "Fielddata is disabled on [%s] in [%s].", field, ix.name)
			}
			keys = append(keys, sortKey{field, f.Type, o != nil && o.Order == "desc"})
		}
	}
	if len(keys) == 0 {
		return nil, &queryError{501, "stand_in_exception", "the stand-in does not know relevance: a search must be sorted"}
	}
	return keys, nil
}

// of reads a document's sort values: the least of several when ascending, the greatest when descending. What is
// missing comes last.
func (k sortKeys) of(doc *document) []any {
	values := make([]any, len(k))
	for n, key := range k {
		least := func(a, b value) int {
			c := cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.text, b.text))
			if key.desc {
				return -c
			}
			return c
		}
		given := doc.fields[key.field]
		switch {
		case len(given) > 0 && key.kind == "keyword":
			values[n] = slices.MinFunc(given, least).text
		case len(given) > 0:
			values[n] = slices.MinFunc(given, least).number
		case key.kind == "keyword":
			values[n] = nil
		case !key.desc:
			values[n] = int64(math.MaxInt64)
		case key.kind == "date_nanos":
			values[n] = int64(0)
		default:
			values[n] = int64(math.MinInt64)
		}
	}
	return values
}

func (k sortKeys) compare(a, b []any) int {
	for n, key := range k {
		if a[n] == b[n] {
			continue
		}
		if a[n] == nil {
			return 1
		}
		if b[n] == nil {
			return -1
		}
		var c int
		if key.kind == "keyword" {
			c = cmp.Compare(a[n].(string), b[n].(string))
		} else {
			c = cmp.Compare(a[n].(int64), b[n].(int64))
		}
		if key.desc {
			c = -c
		}
		return c
	}
	return 0
}

// read takes the sort values of a hit back.
func (k sortKeys) read(after []json.RawMessage) ([]any, *queryError) {
	if len(after) != len(k) {
		return nil, badQuery("illegal_argument_exception", "search_after has %d value(s) but sort has %d.", len(after), len(k))
	}
	values := make([]any, len(k))
	for n, raw := range after {
		var err error
		if k[n].kind == "keyword" {
			var text *string
			if err = json.Unmarshal(raw, &text); err == nil && text != nil {
				values[n] = *text
			}
		} else {
			var number int64
			err = json.Unmarshal(raw, &number)
			values[n] = number
		}
		if err != nil {
			return nil, badQuery("parse_exception", "search_after value %d does not fit its field", n)
		}
	}
	return values, nil
}

// condition compiles a query. It knows bool with must and filter, match, term, range and match_all.
func (ix *index) condition(raw json.RawMessage) (func(*document) bool, *queryError) {
	if len(raw) == 0 {
		return func(*document) bool { return true }, nil
	}
	var query map[string]json.RawMessage
	if err := json.Unmarshal(raw, &query); err != nil || len(query) != 1 {
		return nil, badQuery("parsing_exception", "a query has exactly one name")
	}
	for name, body := range query {
		switch name {
		case "match_all":
			return func(*document) bool { return true }, nil
		case "bool":
			return ix.all(body)
		case "match", "term", "range":
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(body, &fields); err != nil || len(fields) != 1 {
				return nil, badQuery("parsing_exception", "[%s] names one field", name)
			}
			field := slices.Collect(maps.Keys(fields))[0]
			return ix.leaf(name, field, fields[field])
		default:
			return nil, &queryError{501, "stand_in_exception", "the stand-in does not know the query " + name}
		}
	}
	return nil, nil
}

func (ix *index) all(body json.RawMessage) (func(*document) bool, *queryError) {
	var clauses struct{ Must, Filter []json.RawMessage }
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&clauses); err != nil {
		return nil, &queryError{501, "stand_in_exception", "the stand-in does not know this bool query: " + err.Error()}
	}
	var parts []func(*document) bool
	for _, clause := range slices.Concat(clauses.Must, clauses.Filter) {
		part, err := ix.condition(clause)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return func(doc *document) bool {
		return !slices.ContainsFunc(parts, func(part func(*document) bool) bool { return !part(doc) })
	}, nil
}

func (ix *index) leaf(name, field string, body json.RawMessage) (func(*document) bool, *queryError) {
	f, known := ix.mapping.Properties[field]
	if !known {
		return func(*document) bool { return false }, nil // an unmapped field matches nothing and is no error
	}
	switch {
	case name == "match" && f.Type == "text":
		var m struct{ Query, Operator string }
		if err := json.Unmarshal(body, &m); err != nil || m.Operator != "and" {
			return nil, &queryError{501, "stand_in_exception", "the stand-in knows match with a query and operator and"}
		}
		words := analyze(m.Query)
		return func(doc *document) bool {
			return len(words) > 0 && !slices.ContainsFunc(words, func(w string) bool {
				return !slices.Contains(doc.fields[field], value{text: w})
			})
		}, nil
	case name == "term" && f.Type == "keyword":
		var exact string
		if err := json.Unmarshal(body, &exact); err != nil {
			return nil, &queryError{501, "stand_in_exception", "the stand-in knows term with a string"}
		}
		return func(doc *document) bool { return slices.Contains(doc.fields[field], value{text: exact}) }, nil
	case name == "range" && f.Type == "date_nanos":
		return timeRange(field, body)
	}
	return nil, &queryError{501, "stand_in_exception", "the stand-in does not know " + name + " on " + f.Type}
}

func timeRange(field string, body json.RawMessage) (func(*document) bool, *queryError) {
	var bounds map[string]string
	if err := json.Unmarshal(body, &bounds); err != nil {
		return nil, badQuery("parse_exception", "a bound is a string")
	}
	from, to := int64(math.MinInt64), int64(math.MaxInt64) // from ≤ t < to
	for name, text := range bounds {
		at, err := parseDate(text, false)
		if err != nil {
			return nil, badQuery("parse_exception", "failed to parse date field [%s]", text)
		}
		switch name {
		case "gte":
			from = at
		case "lt":
			to = at
		default:
			return nil, &queryError{501, "stand_in_exception", "the stand-in knows the bounds gte and lt"}
		}
	}
	return func(doc *document) bool {
		return slices.ContainsFunc(doc.fields[field], func(v value) bool { return v.number >= from && v.number < to })
	}, nil
}
