package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table writes the figures for a terminal.
func (r *Report) Table(w io.Writer) error {
	aligned := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	var t strings.Builder
	for _, c := range r.Cases {
		fmt.Fprintf(&t, "\n%s\n", c.Title)
		fmt.Fprintf(&t, "\trows/s\tmin\tmax\trows\tkeys\trelays\tread back\tout of order\tpeak RSS\tCPU/row: relay\tPostgres\tKafka\t\n")
		for _, l := range c.Lines {
			fmt.Fprintf(&t, "%s\t%.0f\t%.0f\t%.0f\t%d\t%d\t%d\t%s\t%s\t%.0f MB\t%.0f µs\t%.0f µs\t%.0f µs\t\n",
				l.Label, l.Median, l.Min, l.Max, l.Rows, l.Keys, l.Relays, l.readBack(), l.order(), l.PeakRSSMB, l.CPU.Relays, l.CPU.Postgres, l.CPU.Kafka)
		}
	}
	if len(r.Idle) > 0 {
		fmt.Fprintf(&t, "\nIdle: commit until a consumer has the record\n\tp50\tp99\tmax\tsamples\t\n")
		for _, i := range r.Idle {
			fmt.Fprintf(&t, "%s\t%.1f ms\t%.1f ms\t%.1f ms\t%d\t\n", i.Label, i.P50, i.P99, i.Max, i.Samples)
		}
	}
	if _, err := io.WriteString(aligned, t.String()); err != nil {
		return err
	}
	return aligned.Flush()
}

func (l *Line) readBack() string {
	switch {
	case l.Silent:
		return "-"
	case l.Complete():
		return "all, once"
	}
	return fmt.Sprintf("%v of %d", l.Distinct, l.Rows)
}

// order is the violations of each round, or one figure when all rounds agree; "-" when nothing could be out of order.
func (l *Line) order() string {
	if l.Silent || l.Rows <= l.Keys {
		return "-"
	}
	for _, v := range l.Violations {
		if v != l.Violations[0] {
			return strings.Trim(strings.ReplaceAll(fmt.Sprint(l.Violations), " ", "/"), "[]")
		}
	}
	return fmt.Sprint(l.Violations[0])
}
