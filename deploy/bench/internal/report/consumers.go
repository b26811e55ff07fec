package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Consumers is everything that one run of the consumers' benchmark has found.
type Consumers struct {
	At      time.Time       `json:"at"`
	Quick   bool            `json:"quick"`
	Machine Machine         `json:"machine"`
	Cases   []*ConsumerCase `json:"cases"`
	Ratios  ConsumerRatios  `json:"ratios"`
}

// ConsumerCase is a comparison of consumers.
type ConsumerCase struct {
	Name  string          `json:"name"`
	Title string          `json:"title"`
	OneIn int             `json:"one_in,omitempty"` // one event in so many fails or is slow
	Lines []*ConsumerLine `json:"lines"`
}

// ConsumerLine is one consumer in one case, over all rounds. Every round had every effect once and in order.
type ConsumerLine struct {
	Name       string      `json:"name"`
	Label      string      `json:"label"`
	Rows       int         `json:"rows"`
	Keys       int         `json:"keys"`
	Partitions int         `json:"partitions"`
	Rates      []float64   `json:"events_per_second"` // by round
	Median     float64     `json:"median"`
	Min        float64     `json:"min"`
	Max        float64     `json:"max"`
	CPU        ConsumerCPU `json:"cpu_us_per_event"`
	// Cost is by how many milliseconds one event that fails or is slow puts off the end of the whole backlog.
	Cost *float64 `json:"cost_ms,omitempty"`

	cpus [3][]float64
}

// ConsumerCPU is processor time per event in microseconds, the median of the rounds, with the start of the process.
type ConsumerCPU struct {
	Consumer float64 `json:"consumer"`
	Postgres float64 `json:"postgres"`
	Kafka    float64 `json:"kafka"`
}

// Add takes one round into the line.
func (l *ConsumerLine) Add(effects int, elapsed, consumer, postgres, kafka time.Duration) {
	l.Rates = append(l.Rates, round1(float64(effects)/elapsed.Seconds()))
	l.Median, l.Min, l.Max = median(l.Rates), slices.Min(l.Rates), slices.Max(l.Rates)
	for i, c := range []time.Duration{consumer, postgres, kafka} {
		l.cpus[i] = append(l.cpus[i], float64(c.Microseconds())/float64(effects))
	}
	l.CPU = ConsumerCPU{round1(median(l.cpus[0])), round1(median(l.cpus[1])), round1(median(l.cpus[2]))}
}

// ConsumerRatios are batches against one transaction for each message; null is what was not measured.
type ConsumerRatios struct {
	OnePartition         *float64 `json:"one_partition"`          // with the same handler, at one partition
	EightPartitionsBatch *float64 `json:"eight_partitions_batch"` // with a handler for the batch, at eight
}

// Reckon fills the ratios from the cases, and the costs from what each consumer does at eight partitions without trouble.
func (r *Consumers) Reckon() {
	r.Ratios = ConsumerRatios{OnePartition: r.against("one", "each"), EightPartitionsBatch: r.against("eight", "together")}
	for _, c := range r.Cases {
		for _, l := range c.Lines {
			if calm := r.line("eight", l.Name); calm != nil && c.OneIn > 0 {
				cost := round1((1/l.Median - 1/calm.Median) * float64(c.OneIn) * 1000)
				l.Cost = &cost
			}
		}
	}
}

// against is a line over the line "lean" of the same case, round by round.
func (r *Consumers) against(name, line string) *float64 {
	a, b := r.line(name, line), r.line(name, "lean")
	if a == nil || b == nil {
		return nil
	}
	var each []float64
	for i := range min(len(a.Rates), len(b.Rates)) {
		each = append(each, a.Rates[i]/b.Rates[i])
	}
	m := math.Round(median(each)*1000) / 1000
	return &m
}

// line is nil when it was not measured.
func (r *Consumers) line(name, line string) *ConsumerLine {
	for _, c := range r.Cases {
		for _, l := range c.Lines {
			if c.Name == name && l.Name == line {
				return l
			}
		}
	}
	return nil
}

// LastLine is what the program prints last.
func (r *Consumers) LastLine() (string, error) {
	b, err := json.Marshal(map[string]ConsumerRatios{"ratios": r.Ratios})
	return string(b), err
}

// Table writes the figures for a terminal.
func (r *Consumers) Table(w io.Writer) error {
	aligned := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	var t strings.Builder
	for _, c := range r.Cases {
		fmt.Fprintf(&t, "\n%s\n\tevents/s\tmin\tmax\trows\tkeys\tCPU/event: consumer\tPostgres\tKafka\t", c.Title)
		if c.OneIn > 0 {
			t.WriteString("each of them costs\t")
		}
		t.WriteString("\n")
		for _, l := range c.Lines {
			fmt.Fprintf(&t, "%s\t%.0f\t%.0f\t%.0f\t%d\t%d\t%.0f µs\t%.0f µs\t%.0f µs\t",
				l.Label, l.Median, l.Min, l.Max, l.Rows, l.Keys, l.CPU.Consumer, l.CPU.Postgres, l.CPU.Kafka)
			if l.Cost != nil {
				fmt.Fprintf(&t, "%.1f ms\t", *l.Cost)
			}
			t.WriteString("\n")
		}
	}
	if _, err := io.WriteString(aligned, t.String()); err != nil {
		return err
	}
	return aligned.Flush()
}

// Chart draws a bar for each line, as Report.Chart does.
func (r *Consumers) Chart() string {
	var b strings.Builder
	y, rounds := 74, 0
	for _, c := range r.Cases {
		most := 1.0
		for _, l := range c.Lines {
			most, rounds = max(most, l.Max), max(rounds, len(l.Rates))
		}
		heading(&b, y, c.Title)
		y += headroom
		for _, l := range c.Lines {
			line(&b, y, l.Label, colour(l.Name == "each" || l.Name == "together", false), fmt.Sprintf("%.0f/s", l.Median), l.Median/most, l.Min/most, l.Max/most)
			y += pitch
		}
	}
	return picture("Consumers: events per second", where(r.Machine, r.At), how(rounds), y, b.String())
}
