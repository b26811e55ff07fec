package report

import (
	"fmt"
	"html"
	"strings"
	"time"
)

// Sizes of the chart, in pixels.
const (
	width    = 920
	labels   = 250 // room for the names on the left
	figures  = 250 // room for the figures on the right
	bar      = 16
	pitch    = 24
	headroom = 34
)

// Chart draws a bar for each line, a panel for each case with a scale of its own, and a whisker from the slowest round
// to the fastest.
func (r *Report) Chart() string {
	var b strings.Builder
	y := 74
	for _, c := range r.Cases {
		y = c.panel(&b, y)
	}
	if len(r.Idle) > 0 {
		y = idlePanel(&b, r.Idle, y)
	}
	return picture("Outbox relays: rows per second", where(r.Machine, r.At), how(r.rounds()), y, b.String())
}

// picture frames panels that end at y.
func picture(title, where, how string, y int, panels string) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">
<rect width="100%%" height="100%%" fill="#ffffff"/>
<text x="16" y="26" font-size="17" font-weight="bold">%s</text>
<text x="16" y="46" fill="#666666">%s</text>
<text x="16" y="64" fill="#666666">%s</text>
%s</svg>
`, width, y+8, width, y+8, html.EscapeString(title), html.EscapeString(where), html.EscapeString(how), panels)
}

func where(m Machine, at time.Time) string {
	return fmt.Sprintf("%s, %d cores, PostgreSQL %s, %s; load average before the run: %s", m.CPU, m.Cores, m.Postgres, at.Format("2006-01-02"), m.Load)
}

func how(rounds int) string {
	return fmt.Sprintf("Bar: median of %d interleaved rounds. Whisker: slowest to fastest.", rounds)
}

func (r *Report) rounds() (n int) {
	for _, c := range r.Cases {
		for _, l := range c.Lines {
			n = max(n, len(l.Rates))
		}
	}
	return n
}

func (c *Case) panel(b *strings.Builder, y int) int {
	most := 1.0
	for _, l := range c.Lines {
		most = max(most, l.Max)
	}
	heading(b, y, c.Title)
	y += headroom
	for _, l := range c.Lines {
		note := fmt.Sprintf("%.0f/s", l.Median)
		if l.order() != "-" {
			note += fmt.Sprintf(", out of order: %s", l.order())
		}
		line(b, y, l.Label, colour(l.Design == "ours", l.Silent), note, l.Median/most, l.Min/most, l.Max/most)
		y += pitch
	}
	return y
}

func idlePanel(b *strings.Builder, idle []*Idle, y int) int {
	most := 1.0
	for _, i := range idle {
		most = max(most, i.P99)
	}
	heading(b, y, "Idle: ms from a commit until a consumer has the record (bar: median, whisker: to the 99th percentile)")
	y += headroom
	for _, i := range idle {
		line(b, y, i.Label, colour(i.Name != "naive", false), fmt.Sprintf("p50 %.1f ms, p99 %.1f ms", i.P50, i.P99), i.P50/most, i.P50/most, i.P99/most)
		y += pitch
	}
	return y
}

func colour(ours, silent bool) string {
	switch {
	case ours:
		return "#2f6fde"
	case silent:
		return "#d9dee4"
	}
	return "#9aa5b1"
}

func heading(b *strings.Builder, y int, text string) {
	fmt.Fprintf(b, `<text x="16" y="%d" font-weight="bold">%s</text>`+"\n", y+20, html.EscapeString(text))
}

// line draws one bar. Its length and the whisker's ends are shares of the panel's scale.
func line(b *strings.Builder, y int, label, fill, note string, length, from, to float64) {
	scale := float64(width - labels - figures)
	at := func(share float64) float64 { return labels + share*scale }
	middle := y + bar/2
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, labels-10, middle+5, html.EscapeString(label))
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, labels, y, max(1, length*scale), bar, fill)
	fmt.Fprintf(b, `<path d="M%.1f %dH%.1fM%.1f %dv6M%.1f %dv6" stroke="#222222" fill="none"/>`,
		at(from), middle, at(to), at(from), middle-3, at(to), middle-3)
	fmt.Fprintf(b, `<text x="%.1f" y="%d">%s</text>`+"\n", at(to)+8, middle+5, html.EscapeString(note))
}
