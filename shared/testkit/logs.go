package testkit

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
)

// LogCapture is a slog.Handler that keeps what is logged, as the JSON lines that a service would write.
type LogCapture struct {
	slog.Handler
	out *Output
}

// Logs returns a handler for slog.New that captures every level.
func Logs() *LogCapture {
	out := &Output{}
	return &LogCapture{slog.NewJSONHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}), out}
}

// Text is everything logged so far, one JSON object a line. It is what a search for secrets looks through.
func (l *LogCapture) Text() string { return l.out.String() }

// Find returns the captured records with the message msg, each with its attributes by name; a group is a map in it.
// Numbers are float64, as JSON has no others.
func (l *LogCapture) Find(msg string) []map[string]any {
	var found []map[string]any
	for line := range strings.Lines(l.Text()) {
		record := map[string]any{}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			panic(fmt.Sprintf("slog wrote no JSON: %q", line))
		}
		if record[slog.MessageKey] == msg {
			found = append(found, record)
		}
	}
	return found
}
