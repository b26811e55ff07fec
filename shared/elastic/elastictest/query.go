package elastictest

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
)

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
