package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"example.com/paycast/shared/kafka"
	"example.com/paycast/tools/payctl/internal/doctor"
	"example.com/paycast/tools/payctl/internal/fleet"
)

type doctorCommand struct {
	Horizon   time.Duration `help:"How far back replays from Kafka may reach." default:"${horizon}"`
	Tolerance time.Duration `help:"How far clocks may be apart." default:"${tolerance}"`
}

// Run asks everybody and shows each rule; bad ones last, with what they lead to.
func (c doctorCommand) Run(a *app) error {
	f := doctor.Facts{Horizon: c.Horizon, Tolerance: c.Tolerance, Processes: make([]doctor.Process, len(a.fleet.Processes))}
	var wg sync.WaitGroup
	for i, p := range a.fleet.Processes {
		wg.Go(func() { f.Processes[i] = examine(a, a.fleet, p) })
	}
	wg.Wait()
	if a.fleet.Brokers == "" {
		f.KafkaErr = fmt.Errorf("KAFKA_BROKERS is not in %s; name the brokers there", a.fleet.Source)
	} else if used := doctor.Topics(f.Processes); len(used) > 0 {
		ctx, cancel := context.WithTimeout(a, 15*time.Second)
		defer cancel()
		f.Kafka, f.KafkaErr = kafka.Seen(ctx, a.fleet.Brokers, used...)
	}
	findings := doctor.Check(f)
	shown := map[string][]row{}
	summary, broken := "", 0
	for i, found := range findings {
		verdict := "ok"
		switch {
		case found.OK:
			findings[i].Otherwise = ""
		case found.Note:
			verdict = "note"
		default:
			verdict = "BAD"
			broken++
			summary += fmt.Sprintf("\n  %s, %s: %s", found.Rule, found.Of, found.Otherwise)
		}
		shown[verdict] = append(shown[verdict], row{"verdict": verdict, "rule": found.Rule, "of": found.Of, "arithmetic": found.Arithmetic})
	}
	var err error
	if a.json {
		err = printJSON(a.out, findings)
	} else {
		err = table(a.out, []string{"verdict", "rule", "of", "arithmetic"}, slices.Concat(shown["ok"], shown["note"], shown["BAD"]))
	}
	if err == nil && broken > 0 {
		err = nothing(fmt.Sprintf("%d of %d rules are broken%s", broken, len(findings), summary))
	}
	return err
}

func examine(ctx context.Context, fl fleet.Fleet, p fleet.Process) doctor.Process {
	seen := doctor.Process{Name: p.Name}
	notOK, err := readiness(ctx, p)
	asked := time.Now()
	if err == nil {
		err = p.GetJSON(ctx, "/ops/settings", nil, &seen.Report)
	}
	if err != nil {
		seen.Err = fl.Explain(p, err)
		if len(notOK) > 0 {
			seen.Err = errors.Join(seen.Err, fmt.Errorf("not ready: %v", notOK))
		}
		return seen
	}
	seen.NotOK, seen.RoundTrip = notOK, time.Since(asked)
	seen.Ahead = seen.Report.Now.Sub(asked.Add(seen.RoundTrip / 2))
	return seen
}
