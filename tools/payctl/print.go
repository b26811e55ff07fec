package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one JSON object of a list.
type row map[string]any

// decode keeps numbers as they are written: an int64 is not a float64.
func decode(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(into)
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// table prints rows under the names of their columns.
func table(w io.Writer, columns []string, rows []row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	heads := make([]string, len(columns))
	for i, c := range columns {
		heads[i] = strings.ToUpper(strings.ReplaceAll(c, "_", " "))
	}
	fmt.Fprintln(t, strings.Join(heads, "\t"))
	for _, r := range rows {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = text(r[c])
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

// field is one member of an object, in the order in which the service sent it.
type field struct {
	name  string
	value any
}

func fields(object json.RawMessage) ([]field, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	if _, err := d.Token(); err != nil { // the brace
		return nil, err
	}
	var all []field
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value any
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		all = append(all, field{fmt.Sprint(name), value})
	}
	return all, nil
}

// list prints an object's fields, one a line.
func list(w io.Writer, all []field) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range all {
		fmt.Fprintf(t, "  %s\t%s\n", f.name, text(f.value))
	}
	return t.Flush()
}

// text is a value as people read it; times to the second, in UTC.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return at.UTC().Format("2006-01-02 15:04:05Z")
		}
		// Texts come from other systems: what is not printable could move the cursor of an operator's terminal.
		return strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
				return '?'
			}
			return r
		}, v)
	case map[string]any, []any:
		encoded, err := json.Marshal(v)
		if err != nil {
			return err.Error()
		}
		return string(encoded)
	}
	return fmt.Sprint(v)
}
