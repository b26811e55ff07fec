package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"example.com/paycast/deploy/bench/internal/consume"
	"example.com/paycast/deploy/bench/internal/design"
	"example.com/paycast/deploy/bench/internal/report"
	"example.com/paycast/deploy/bench/internal/stage"
)

// consumption is a case that is still to be run.
type consumption struct {
	*report.ConsumerCase
	runs []stage.Consumption
}

// failing and slow are how rare the events are that trouble their neighbours.
const (
	failing = 1_000
	slow1in = 1_000
)

// consumptions lists the cases. A fast design gets more rows, so that each run takes a second or more.
func consumptions(quick bool) []consumption {
	rows := map[string]int{"lean": 6_000, "single": 4_000, "each": 20_000, "together": 100_000}
	if quick {
		rows = map[string]int{"lean": 1_500, "single": 1_000, "each": 6_000, "together": 40_000}
	}
	build := func(name, title string, partitions, fails, slows int, designs ...string) consumption {
		c := consumption{ConsumerCase: &report.ConsumerCase{Name: name, Title: title, OneIn: max(fails, slows)}}
		for _, d := range designs {
			r := design.Rows{N: rows[d], Keys: rows[d] / 10}
			if fails > 0 {
				r.Keys = r.N // every order has one event, so that nothing waits behind a failed one
			}
			c.runs = append(c.runs, stage.Consumption{Design: d, Rows: r, Partitions: partitions, Failing: fails, Slow: slows})
			c.Lines = append(c.Lines, &report.ConsumerLine{Name: d, Label: consume.Labels[d], Rows: r.N, Keys: r.Keys, Partitions: partitions})
		}
		return c
	}
	if quick {
		return []consumption{
			build("one", "1 partition", 1, 0, 0, "lean", "each"),
			build("eight", "8 partitions", 8, 0, 0, "lean", "together"),
		}
	}
	return []consumption{
		build("one", "1 partition", 1, 0, 0, "lean", "single", "each", "together"),
		build("eight", "8 partitions", 8, 0, 0, "lean", "single", "each", "together"),
		build("failing", fmt.Sprintf("8 partitions, one event in %d fails and goes to the retry lane", failing), 8, failing, 0, "single", "each", "together"),
		build("slow", fmt.Sprintf("8 partitions, one event in %d takes %v", slow1in, consume.SlowFor), 8, 0, slow1in, "lean", "single", "each", "together"),
	}
}

// benchConsumers runs all cases and reports.
func benchConsumers(ctx context.Context, quick bool, rounds int, out string) (err error) {
	begin := time.Now()
	s, err := stage.Open(ctx, report.MemoryMB()/4)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	r := &report.Consumers{At: begin.UTC(), Quick: quick, Machine: report.ThisMachine(s.Version, s.Buffers)}
	for _, c := range consumptions(quick) {
		r.Cases = append(r.Cases, c.ConsumerCase)
		fmt.Printf("%s\n", c.Title)
		if err := consumeAll(ctx, s, c, rounds, begin); err != nil {
			return err
		}
	}
	r.Reckon()
	if err := r.Table(os.Stdout); err != nil {
		return err
	}
	if out != "" {
		if err := writeConsumers(r, out); err != nil {
			return err
		}
		fmt.Printf("\nwritten to %s: consumer.json and consumer.svg\n", out)
	}
	last, err := r.LastLine()
	if err != nil {
		return err
	}
	fmt.Printf("\n%s\n", last)
	return nil
}

// consumeAll lets the designs of a case take turns, every other round backwards, and checks each run.
func consumeAll(ctx context.Context, s *stage.Stage, c consumption, rounds int, begin time.Time) error {
	order := make([]int, len(c.runs))
	for i := range order {
		order[i] = i
	}
	for round := range rounds {
		for _, i := range order {
			l, run := c.Lines[i], c.runs[i]
			got, err := s.Consume(ctx, run)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c.Title, l.Label, err)
			}
			want := run.Wanted()
			if got.Effects != want || got.Distinct != want || got.Violations > 0 || got.Lane != run.Rows.N-want {
				return fmt.Errorf("%s, %s: %d effects of %d events, %d wanted, %d out of order, %d in the lane",
					c.Title, l.Label, got.Effects, got.Distinct, want, got.Violations, got.Lane)
			}
			l.Add(want, got.Elapsed, got.CPU.Relays, got.CPU.Postgres, got.CPU.Kafka)
			fmt.Printf("  %5v  round %d of %d  %-34s %8.0f events/s\n", since(begin), round+1, rounds, l.Label, l.Rates[round])
		}
		slices.Reverse(order)
	}
	return nil
}

func writeConsumers(r *report.Consumers, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "consumer.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "consumer.svg"), []byte(r.Chart()), 0o644)
}

// consumeAs says that it is ready, waits for a line on its standard input, and consumes until it is ended.
func consumeAs(ctx context.Context, flags *flag.FlagSet, args []string) error {
	var t consume.Target
	flags.StringVar(&t.DatabaseURL, "database", "", "address of the database")
	flags.StringVar(&t.Brokers, "brokers", "", "host:port")
	flags.IntVar(&t.Failing, "failing", 0, "one event in so many fails")
	flags.IntVar(&t.Slow, "slow", 0, "one event in so many is slow")
	if len(args) == 0 {
		return errors.New("which consumer?")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	fmt.Print(stage.Ready)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	return consume.Run(ctx, args[0], t)
}
