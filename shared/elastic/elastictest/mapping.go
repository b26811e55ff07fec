package elastictest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// mapping is the fields that documents may have, with their types: keyword, text, long, date_nanos.
type mapping struct {
	Dynamic    string               `json:"dynamic"`
	Properties map[string]fieldType `json:"properties"`
}

type fieldType struct {
	Type string `json:"type"`
}

// UnmarshalJSON refuses every mapping that this server would not keep as Elasticsearch does.
func (m *mapping) UnmarshalJSON(b []byte) error {
	type plain mapping
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode((*plain)(m)); err != nil {
		return fmt.Errorf("the stand-in does not know this mapping: %w", err)
	}
	if m.Dynamic != "strict" {
		return fmt.Errorf("the stand-in knows strict mappings only")
	}
	for name, f := range m.Properties {
		switch f.Type {
		case "keyword", "text", "long", "date_nanos":
		default:
			return fmt.Errorf("the stand-in does not know the type [%s] of field [%s]", f.Type, name)
		}
	}
	return nil
}

// value is one indexed value: a number (long, nanoseconds) or a string (keyword, one word of a text).
type value struct {
	number int64
	text   string
}

// misfit is why a document does not go in.
type misfit struct{ kind, reason string }

// parse turns a document into indexed values.
func (m mapping) parse(source []byte) (map[string][]value, *misfit) {
	var doc map[string]any
	dec := json.NewDecoder(bytes.NewReader(source))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		return nil, &misfit{"document_parsing_exception", "failed to parse"}
	}
	if doc == nil {
		return nil, &misfit{"document_parsing_exception", "Malformed content, must start with an object"}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, &misfit{"illegal_argument_exception", "Malformed content, found extra data after parsing"}
	}
	fields := map[string][]value{}
	for name, raw := range doc {
		field, known := m.Properties[name]
		if !known {
			return nil, &misfit{"strict_dynamic_mapping_exception",
				"mapping set to strict, dynamic introduction of [" + name + "] within [_doc] is not allowed"}
		}
		values, bad := field.values(raw)
		if bad != nil {
			if bad.reason == "" {
				bad.reason = fmt.Sprintf("failed to parse field [%s] of type [%s]", name, field.Type)
			}
			return nil, bad
		}
		if len(values) > 0 {
			fields[name] = values
		}
	}
	return fields, nil
}

// maxKeyword is the longest indexed term, in bytes.
const maxKeyword = 32766

func (f fieldType) values(raw any) ([]value, *misfit) {
	bad := &misfit{kind: "document_parsing_exception"}
	switch x := raw.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return nil, bad
	case []any:
		var all []value
		for _, element := range x {
			some, bad := f.values(element)
			if bad != nil {
				return nil, bad
			}
			all = append(all, some...)
		}
		return all, nil
	}
	text := fmt.Sprint(raw) // string, json.Number or bool
	_, isBool := raw.(bool)
	_, isNumber := raw.(json.Number)
	switch f.Type {
	case "keyword":
		if len(text) > maxKeyword {
			return nil, &misfit{"illegal_argument_exception", "Document contains at least one immense term"}
		}
		return []value{{text: text}}, nil
	case "text":
		var words []value
		for _, word := range analyze(text) {
			words = append(words, value{text: word})
		}
		return words, nil
	case "long":
		if isBool {
			return nil, bad
		}
		if text == "" {
			return nil, nil
		}
		n, err := parseLong(text)
		if err != nil {
			return nil, bad
		}
		return []value{{number: n}}, nil
	default: // date_nanos
		if isBool {
			return nil, bad
		}
		n, err := parseDate(text, isNumber)
		if err != nil {
			return nil, bad
		}
		return []value{{number: n}}, nil
	}
}

// parseLong takes a number or a string of one, and cuts off a fraction.
func parseLong(text string) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f >= 1<<63 || f < -(1<<63) {
		return 0, fmt.Errorf("not a long")
	}
	return int64(f), nil
}

// parseDate reads strict_date_optional_time, as far as clients write it, or milliseconds since 1970, into nanoseconds.
func parseDate(text string, number bool) (int64, error) {
	var t time.Time
	millis, err := strconv.ParseInt(text, 10, 64)
	if err == nil && (number || len(text) > 4) { // four digits are a year
		t = time.UnixMilli(millis)
	} else {
		if strings.ContainsAny(text, "tz ") {
			return 0, fmt.Errorf("not a date")
		}
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02"} {
			if t, err = time.Parse(layout, text); err == nil {
				break
			}
		}
		if err != nil {
			return 0, err
		}
	}
	if t.Before(time.Unix(0, 0)) || t.After(time.Unix(0, math.MaxInt64)) {
		return 0, fmt.Errorf("cannot be stored in nanosecond resolution")
	}
	return t.UnixNano(), nil
}
