package main

import (
	"fmt"
	"io"
	"os"
	"sync"

	"example.com/paycast/deploy/local/internal/stack"
)

// console writes whole lines for people, from several goroutines, in colours only on a terminal.
type console struct {
	mu     sync.Mutex
	out    io.Writer
	colour bool
}

func newConsole(out *os.File) *console {
	info, err := out.Stat()
	tty := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &console{out: out, colour: tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (c *console) line(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.out, format+"\n", args...)
}

// Write takes what the supervisor tells of deaths.
func (c *console) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(text)
}

func (c *console) step(s stack.Step) {
	mark := c.paint(green, "✓")
	if s.Pending {
		mark = c.paint(yellow, "…")
	}
	c.line("  %s %-14s %-48s %6.1f s", mark, s.Name, s.Detail, s.Took.Seconds())
}

type colour string

const (
	bold   colour = "1"
	dim    colour = "2"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	cyan   colour = "36"
)

func (c *console) paint(with colour, text string) string {
	if !c.colour {
		return text
	}
	return "\x1b[" + string(with) + "m" + text + "\x1b[0m"
}
