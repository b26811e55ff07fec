package load

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/paycast/deploy/world/provider"
)

// Config is one run. PerSecond, Parallel and DuplicatePercent have no hidden defaults; Validate says what is missing.
type Config struct {
	PaymentURL       string
	Provider         *provider.Provider
	Orders           int       // how many in all
	PerSecond        float64   // orders started per second
	Parallel         int       // orders under way at once; more wait
	DuplicatePercent int       // share of orders whose callback is sent three times at once
	Progress         io.Writer // a line every ProgressEvery and one at the end; nil is silent
	ProgressEvery    time.Duration
}

// Bounds of one run.
const (
	maxOrders, maxPerSecond, maxParallel = 1_000_000, 5_000, 500
	duplicateCopies                      = 3
	requestTimeout                       = 10 * time.Second
)

// Validate reports every problem at once.
func (c Config) Validate() error {
	var bad []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Errorf(format, args...))
		}
	}
	check(c.PaymentURL != "" && c.Provider != nil, "the payment address and a provider are needed")
	check(c.Orders > 0 && c.Orders <= maxOrders, "orders must be from 1 to %d", maxOrders)
	check(c.PerSecond > 0 && c.PerSecond <= maxPerSecond, "the rate must be above 0 and at most %d per second", maxPerSecond)
	check(c.Parallel > 0 && c.Parallel <= maxParallel, "orders under way must be from 1 to %d", maxParallel)
	check(c.DuplicatePercent >= 0 && c.DuplicatePercent <= 100, "duplicates must be from 0 to 100 percent")
	check(c.Progress == nil || c.ProgressEvery > 0, "progress lines need an interval")
	return errors.Join(bad...)
}

// Run makes the orders and returns the journal when the last one is done. When ctx ends it starts no more, finishes
// what is under way as far as ctx lets it, and returns what it has with ctx's error.
func Run(ctx context.Context, c Config) (*Journal, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: c.Parallel}
	defer transport.CloseIdleConnections()
	r := &run{Config: c, id: rand.Text()[:8], client: &http.Client{Timeout: requestTimeout, Transport: transport}}
	j := &Journal{begin: time.Now()}

	reporting, stop := context.WithCancel(ctx)
	var reports sync.WaitGroup
	reports.Go(func() { r.report(reporting, j) })

	var group errgroup.Group
	group.SetLimit(c.Parallel)
	interval := time.Duration(float64(time.Second) / c.PerSecond)
	for n := 0; n < c.Orders && sleepUntil(ctx, j.begin.Add(time.Duration(n)*interval)); n++ {
		j.due(time.Since(j.begin.Add(time.Duration(n) * interval)))
		group.Go(func() error {
			j.add(r.one(ctx, n))
			return nil
		})
	}
	_ = group.Wait() // one has no error: what happened is in its entry
	stop()
	reports.Wait()
	if c.Progress != nil {
		fmt.Fprintln(c.Progress, j.line(c.Orders))
	}
	return j, ctx.Err()
}

func sleepUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// report prints a line at each interval until ctx ends.
func (r *run) report(ctx context.Context, j *Journal) {
	if r.Progress == nil {
		return
	}
	ticker := time.NewTicker(r.ProgressEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			fmt.Fprintln(r.Progress, j.line(r.Orders))
		case <-ctx.Done():
			return
		}
	}
}
