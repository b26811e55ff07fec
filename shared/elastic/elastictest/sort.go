package elastictest

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
)

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
