package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"example.com/paycast/deploy/bench/internal/report"
	"example.com/paycast/deploy/bench/internal/stage"
)

// bench runs all comparisons and reports. Everything but the last line goes to the terminal as it comes.
func bench(ctx context.Context, o options, rounds int, out string) (err error) {
	begin := time.Now()
	s, err := stage.Open(ctx, report.MemoryMB()/4)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	s.Profiles = o.profiles
	if o.real {
		if o.brokers, err = s.RealKafka(ctx); err != nil {
			return err
		}
	}
	r := &report.Report{At: begin.UTC(), Quick: o.quick, Machine: report.ThisMachine(s.Version, s.Buffers)}
	for _, c := range comparisons(o) {
		r.Cases = append(r.Cases, c.Case)
		if err := compare(ctx, s, c, rounds, begin); err != nil {
			return err
		}
	}
	if !o.quick && o.wants("idle") {
		if r.Idle, err = idle(ctx, s, rounds, begin); err != nil {
			return err
		}
	}
	r.Reckon()
	if err := r.Table(os.Stdout); err != nil {
		return err
	}
	if out != "" {
		if err := write(r, out); err != nil {
			return err
		}
		fmt.Printf("\nwritten to %s: relay.json and relay.svg\n", out)
	}
	last, err := r.LastLine()
	if err != nil {
		return err
	}
	fmt.Printf("\n%s\n", last)
	return wrong(r)
}

// compare runs the drains of a comparison one after the other, and that as often as there are rounds. Every other round
// goes backwards, so that a machine that gets slower or faster favours nobody.
func compare(ctx context.Context, s *stage.Stage, c comparison, rounds int, begin time.Time) error {
	fmt.Printf("%s\n", c.Title)
	order := make([]int, len(c.drains))
	for i := range order {
		order[i] = i
	}
	for round := range rounds {
		for _, i := range order {
			l := c.Lines[i]
			got, err := s.Run(ctx, c.drains[i])
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c.Title, l.Label, err)
			}
			l.Add(report.Round{Elapsed: got.Elapsed, CPU: [3]time.Duration{got.CPU.Relays, got.CPU.Postgres, got.CPU.Kafka},
				Records: got.Records, Distinct: got.Distinct,
				Violations: got.Violations, Keys: got.Keys, PeakRSS: got.PeakRSS})
			fmt.Printf("  %5v  round %d of %d  %-34s %8.0f rows/s\n", since(begin), round+1, rounds, l.Label, l.Rates[round])
		}
		slices.Reverse(order)
	}
	return nil
}

// idle measures the way of a single event through relays that have nothing else to do.
func idle(ctx context.Context, s *stage.Stage, rounds int, begin time.Time) ([]*report.Idle, error) {
	fmt.Println("Idle: commit until a consumer has the record")
	all := []struct {
		report.Idle
		design       string
		samples      int
		pace, poll   time.Duration
		withoutWaker bool
	}{
		{Idle: report.Idle{Name: "ours", Label: "paycast, woken after the commit"}, design: "ours", samples: 200, pace: 20 * time.Millisecond},
		{Idle: report.Idle{Name: "poll_10ms", Label: "paycast, polling every 10 ms"}, design: "ours", samples: 200, pace: 20 * time.Millisecond,
			poll: 10 * time.Millisecond, withoutWaker: true},
		{Idle: report.Idle{Name: "naive", Label: "watermill-sql, defaults"}, design: "naive", samples: 20, pace: 100 * time.Millisecond},
	}
	for round := range rounds {
		for i := range all {
			a := &all[i]
			took, err := s.Idle(ctx, stage.IdleRun{Design: must(a.design), Samples: a.samples, Pace: a.pace, Poll: a.poll, Unwoken: a.withoutWaker})
			if err != nil {
				return nil, fmt.Errorf("idle, %s: %w", a.Label, err)
			}
			a.Add(took)
			fmt.Printf("  %5v  round %d of %d  %-34s p50 %.1f ms, p99 %.1f ms so far\n", since(begin), round+1, rounds, a.Label, a.P50, a.P99)
		}
	}
	var out []*report.Idle
	for i := range all {
		out = append(out, &all[i].Idle)
	}
	return out, nil
}

func write(r *report.Report, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "relay.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "relay.svg"), []byte(r.Chart()), 0o644)
}

// wrong is an error when a figure means nothing because events are missing, or when ours broke its promise of order.
func wrong(r *report.Report) error {
	for _, c := range r.Cases {
		for _, l := range c.Lines {
			if slices.ContainsFunc(l.Distinct, func(n int) bool { return n != l.Rows }) {
				return fmt.Errorf("%s, %s: events are missing", c.Title, l.Label)
			}
			if l.Design == "ours" && (!l.Complete() || slices.Max(l.Violations) > 0) {
				return fmt.Errorf("%s, %s: not every event once and in order", c.Title, l.Label)
			}
		}
	}
	return nil
}
