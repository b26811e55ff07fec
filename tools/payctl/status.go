package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"example.com/paycast/tools/payctl/internal/fleet"
)

type statusCommand struct{}

// columns are the sums of metrics; a process without the metric shows a dash.
var columns = []struct{ name, metric string }{
	{"pending", "outbox_pending_messages"},
	{"oldest_s", "outbox_oldest_pending_age_seconds"},
	{"dead", "outbox_dead_messages"},
	{"held", "outbox_held_keys"},
	{"lag", "consumer_lag_messages"},
	{"unfinished", "consumer_unfinished_messages"},
	{"letters", "consumer_dead_letters"},
	{"unsent", "notify_unsent_commands"},
	{"drift", "reconcile_drift_items"},
}

// Run shows the table; below it, why a process is not ready.
func (statusCommand) Run(a *app) error {
	rows := make([]row, len(a.fleet.Processes))
	failed := make([]error, len(rows))
	var wg sync.WaitGroup
	for i, p := range a.fleet.Processes {
		wg.Go(func() { rows[i], failed[i] = status(a, p) })
	}
	wg.Wait()
	for i, p := range a.fleet.Processes {
		if failed[i] != nil {
			failed[i] = a.fleet.Explain(p, failed[i])
		}
	}
	if a.json {
		return errors.Join(append(failed, printJSON(a.out, rows))...)
	}
	heads := []string{"process", "ready"}
	for _, c := range columns {
		heads = append(heads, c.name)
	}
	if err := table(a.out, heads, rows); err != nil {
		return err
	}
	for _, r := range rows {
		if why, ok := r["why"].(string); ok {
			fmt.Fprintf(a.out, "%s is not ready: %s\n", r["process"], why)
		}
	}
	return errors.Join(failed...)
}

func status(ctx context.Context, p fleet.Process) (row, error) {
	r := row{"process": p.Name, "ready": "?"}
	bad, err := readiness(ctx, p)
	if err != nil {
		return r, err
	}
	r["ready"] = len(bad) == 0
	if len(bad) > 0 {
		r["why"] = text(strings.Join(bad, "; "))
	}
	_, body, err := get(ctx, p, "/metrics")
	if err != nil {
		return r, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil {
		return r, fmt.Errorf("reading metrics: %w", err)
	}
	for _, c := range columns {
		if family := families[c.metric]; family != nil {
			r[c.name] = sum(family)
		}
	}
	return r, nil
}

func sum(family *dto.MetricFamily) json.Number {
	total := 0.0
	for _, m := range family.GetMetric() {
		total += m.GetGauge().GetValue()
	}
	return json.Number(strconv.FormatFloat(total, 'f', 0, 64))
}

// readiness names the checks of a process that fail.
func readiness(ctx context.Context, p fleet.Process) (bad []string, err error) {
	code, body, err := get(ctx, p, "/readyz")
	if err != nil {
		return nil, err
	}
	var told struct{ Checks map[string]string }
	if err := json.Unmarshal(body, &told); err != nil {
		return nil, fmt.Errorf("/readyz answers %d and no JSON: is this address an operations side?", code)
	}
	for name, result := range told.Checks {
		if result != "ok" {
			bad = append(bad, name+": "+result)
		}
	}
	return bad, nil
}

// get reads what is open: 503 is an answer here.
func get(ctx context.Context, p fleet.Process, path string) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, min(p.HTTP.Timeout, 10*time.Second))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.BaseURL+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	resp, err := p.HTTP.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return resp.StatusCode, body, err
}
