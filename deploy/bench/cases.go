package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/paycast/deploy/bench/internal/design"
	"example.com/paycast/deploy/bench/internal/report"
	"example.com/paycast/deploy/bench/internal/stage"
)

// comparison is a case that is still to be run: a drain for each line.
type comparison struct {
	*report.Case
	drains []stage.Drain
}

// The base case.
const (
	baseRows = 20_000
	baseKeys = 2_000
	manyRows = 1_000_000
	slowRows = 2_000 // for designs that wait for each message, on a slow broker
	slow     = 5 * time.Millisecond
)

// options are the command's.
type options struct {
	quick    bool
	scale    float64 // of all row counts; for trying the program out
	brokers  string  // a Kafka from outside, for the case "real"
	real     bool    // start Apache Kafka for it
	only     string  // these cases by their names, comma-separated; empty: all
	profiles string  // folder for CPU profiles of the relays
}

func (o options) wants(name string) bool {
	return o.only == "" || slices.Contains(strings.Split(o.only, ","), name)
}

// comparisons lists the cases: the base case, then one factor at a time.
func comparisons(o options) []comparison {
	serial := slowRows
	if o.quick {
		serial = 500
	}
	base := newComparison("base", fmt.Sprintf("%d rows of 500 bytes, %d keys, kfake, one relay", baseRows, baseKeys))
	slowed := newComparison("slow", "The same when each produce request takes 5 ms")
	for _, d := range design.All() {
		if o.quick && d.Name == "tuned" {
			continue
		}
		base.add(d.Name, d.Label, stage.Drain{Design: d, Rows: design.Rows{N: baseRows, Keys: baseKeys}})
		if d.Silent {
			continue
		}
		n := baseRows
		if d.Serial {
			n = serial
		}
		slowed.add(d.Name, d.Label, stage.Drain{Design: d, Rows: design.Rows{N: n, Keys: baseKeys}, Delay: slow})
	}
	all := []comparison{base, slowed}
	if !o.quick {
		all = append(all, keys(), million(), relays())
	}
	if o.brokers != "" {
		all = append(all, outside(o.brokers))
	}
	var chosen []comparison
	for _, c := range all {
		if !o.wants(c.Name) {
			continue
		}
		for i := range c.drains {
			rows := &c.drains[i].Rows
			rows.N = max(1, int(float64(rows.N)*o.scale))
			c.Lines[i].Rows = rows.N
		}
		chosen = append(chosen, c)
	}
	return chosen
}

func newComparison(name, title string) comparison {
	return comparison{Case: &report.Case{Name: name, Title: title}}
}

func (c *comparison) add(name, label string, d stage.Drain) {
	d.Relays = max(1, d.Relays)
	kafka := "kfake"
	if d.Brokers != "" {
		kafka = "outside"
	}
	c.drains = append(c.drains, d)
	c.Lines = append(c.Lines, &report.Line{
		Name: name, Label: label, Design: d.Design.Name, Rows: d.Rows.N, Keys: d.Rows.Keys, DelayMS: int(d.Delay.Milliseconds()),
		Relays: d.Relays, Kafka: kafka, Silent: d.Design.Silent,
	})
}

func keys() comparison {
	c := newComparison("keys", "The same with few keys")
	for _, name := range []string{"ours", "chunks"} {
		d := must(name)
		for _, n := range []int{20, 1} {
			c.add(fmt.Sprintf("%s_%d", name, n), fmt.Sprintf("%s, keys: %d", d.Label, n), stage.Drain{Design: d, Rows: design.Rows{N: baseRows, Keys: n}})
		}
	}
	return c
}

func million() comparison {
	c := newComparison("million", "The same with a million rows")
	d := must("ours")
	c.add("small", d.Label+", 20,000 rows", stage.Drain{Design: d, Rows: design.Rows{N: baseRows, Keys: baseKeys}})
	c.add("ours", d.Label+", 1,000,000 rows", stage.Drain{Design: d, Rows: design.Rows{N: manyRows, Keys: baseKeys}})
	return c
}

func relays() comparison {
	c := newComparison("relays", "The same with several relays")
	d := must("ours")
	for _, n := range []int{1, 2, 4} {
		c.add(fmt.Sprintf("ours_%d", n), fmt.Sprintf("%s, relays: %d", d.Label, n), stage.Drain{Design: d, Rows: design.Rows{N: baseRows, Keys: baseKeys}, Relays: n})
	}
	return c
}

func outside(brokers string) comparison {
	c := newComparison("real", "The same on the Kafka at "+brokers)
	for _, name := range []string{"naive", "tuned", "ours", "chunks"} {
		d := must(name)
		c.add(name, d.Label, stage.Drain{Design: d, Rows: design.Rows{N: baseRows, Keys: baseKeys}, Brokers: brokers})
	}
	return c
}

// must is a design that this program names itself.
func must(name string) design.Design {
	d, ok := design.ByName(name)
	if !ok {
		panic("no design " + name)
	}
	return d
}
