// Package console writes whole lines for people, from several goroutines at once, in colours only on a terminal.
package console

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Console is an io.Writer whose lines stay whole.
type Console struct {
	mu     sync.Mutex
	out    *os.File
	colour bool
}

// New writes to out.
func New(out *os.File) *Console {
	info, err := out.Stat()
	tty := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &Console{out: out, colour: tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Write writes text as it is.
func (c *Console) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(text)
}

// Line writes one line.
func (c *Console) Line(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

// Step writes a line of progress.
func (c *Console) Step(name, detail string, took time.Duration, pending bool) {
	mark := c.Paint(Green, "✓")
	if pending {
		mark = c.Paint(Yellow, "…")
	}
	c.Line("  %s %-14s %-48s %6.1f s", mark, name, detail, took.Seconds())
}

// Box draws a frame around lines.
func (c *Console) Box(lines ...string) {
	width := 0
	for _, line := range lines {
		width = max(width, utf8.RuneCountInString(line))
	}
	rule := strings.Repeat("─", width+2)
	c.Line("╭%s╮", rule)
	for _, line := range lines {
		c.Line("│ %s%s │", line, strings.Repeat(" ", width-utf8.RuneCountInString(line)))
	}
	c.Line("╰%s╯", rule)
}

// Colour is a terminal's way to set a part of a line apart.
type Colour string

// The colours.
const (
	Bold   Colour = "1"
	Dim    Colour = "2"
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
	Cyan   Colour = "36"
)

// Paint colours text, or leaves it as it is where there is no terminal.
func (c *Console) Paint(with Colour, text string) string {
	if !c.colour {
		return text
	}
	return "\x1b[" + string(with) + "m" + text + "\x1b[0m"
}
