package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"example.com/paycast/deploy/local/internal/console"
)

// Teller writes the story: aligned lines for people, or the same as JSON lines.
type Teller struct {
	out   *console.Console
	json  bool
	begin time.Time
}

// NewTeller begins to count the time.
func NewTeller(out *console.Console, asJSON bool) *Teller {
	return &Teller{out: out, json: asJSON, begin: time.Now()}
}

// Step is a line of progress while the stack comes up.
func (t *Teller) Step(name, detail string, took time.Duration, pending bool) {
	if !t.json {
		t.out.Step(name, detail, took, pending)
		return
	}
	t.write(map[string]any{"kind": "step", "name": name, "detail": detail, "seconds": took.Seconds(), "pending": pending})
}

// Chapter says what comes next.
func (t *Teller) Chapter(title string) {
	if t.json {
		t.write(map[string]any{"kind": "chapter", "title": title})
		return
	}
	t.out.Line("\n%s", t.out.Paint(console.Bold, title))
}

// Note explains what was shown.
func (t *Teller) Note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if t.json {
		t.write(map[string]any{"kind": "note", "text": text})
		return
	}
	t.out.Line("\n  %s", text)
}

// data are the values of a line, for programs.
type data map[string]any

// hop is one thing that happened, as the named part told it.
func (t *Teller) hop(part string, d data, format string, args ...any) {
	t.line(part, console.Cyan, d, format, args...)
}

// blow is one thing that we did to a process.
func (t *Teller) blow(part string, d data, format string, args ...any) {
	t.line(part, console.Red, d, format, args...)
}

func (t *Teller) line(part string, colour console.Colour, d data, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	at := time.Since(t.begin).Seconds()
	if !t.json {
		t.out.Line("%s  %s %s", t.out.Paint(console.Dim, fmt.Sprintf("%6.2f s", at)), t.out.Paint(colour, fmt.Sprintf("%-10s", part)), text)
		return
	}
	line := map[string]any{"kind": "hop", "at": at, "part": part, "text": text}
	for name, value := range d {
		line[name] = value
	}
	t.write(line)
}

// table has a header, rows, and a column for each of the header's cells.
func (t *Teller) table(header []string, rows [][]string) {
	if t.json {
		t.write(map[string]any{"kind": "table", "header": header, "rows": rows})
		return
	}
	width := make([]int, len(header))
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	print := func(row []string) string {
		var b strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&b, "  %-*s", width[i], cell)
		}
		return strings.TrimRight(b.String(), " ")
	}
	t.out.Line("\n%s", t.out.Paint(console.Bold, print(header)))
	for _, row := range rows {
		t.out.Line("%s", print(row))
	}
}

// Result is the last line.
func (t *Teller) Result(result string) {
	if t.json {
		t.write(map[string]any{"kind": "result", "result": result, "seconds": time.Since(t.begin).Seconds()})
		return
	}
	t.out.Line("\n%s", t.out.Paint(console.Green, result))
}

func (t *Teller) write(line map[string]any) {
	encoder := json.NewEncoder(t.out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(line); err != nil {
		fmt.Fprintln(io.Writer(t.out), err) // standard output is gone; there is nobody to tell
	}
}
