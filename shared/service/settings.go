package service

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/settings"
)

// Settings adds to GET /ops/settings what a mechanism of this process runs with. report is called at each request, and
// after the start; its error is shown to the operator, so it must not hold secrets. Call it before Wait.
func (p *Process) Settings(report func(ctx context.Context, to *settings.Report) error) {
	p.reporters = append(p.reporters, report)
}

func (p *Process) settings(w http.ResponseWriter, r *http.Request) {
	if !p.started.Load() {
		ops.Problem(w, http.StatusServiceUnavailable, "starting", "the process is starting up; ask again when it is ready")
		return
	}
	report, err := p.report(r.Context())
	if err != nil {
		ops.Problem(w, http.StatusServiceUnavailable, "unavailable", err.Error())
		return
	}
	ops.WriteJSON(w, http.StatusOK, report)
}

func (p *Process) report(ctx context.Context) (settings.Report, error) {
	report := settings.Report{Process: p.name}
	for _, add := range p.reporters {
		if err := add(ctx, &report); err != nil {
			return report, err
		}
	}
	report.Now = time.Now().UTC()
	return report, nil
}

const (
	askTimeout = 30 * time.Second // of one look at the settings
	askAgain   = time.Minute      // between two looks at most, while somebody does not answer
)

// checkSettings applies to this process the rules that it can check alone, and logs each broken one once. Nothing waits
// for it and nothing is refused: whoever broke a rule mends it without a restart here, or with one. It looks again for as
// long as the database or Kafka does not answer or a topic is missing, since the parts of a system start in any order.
func (p *Process) checkSettings() {
	told := map[string]bool{}
	for pause := time.Second; ; pause = min(2*pause, askAgain) {
		found, err := p.look()
		if p.ctx.Err() != nil {
			return
		}
		bad := p.tell(found, err, told)
		if err == nil && !slices.ContainsFunc(bad, func(f settings.Finding) bool { return f.Rule == settings.MissingTopic }) {
			if len(found) > 0 && len(bad) == 0 {
				p.Log.Info("the settings keep every rule", "checks", len(found))
			}
			return
		}
		select {
		case <-p.ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (p *Process) look() ([]settings.Finding, error) {
	ctx, cancel := context.WithTimeout(p.ctx, askTimeout)
	defer cancel()
	report, err := p.report(ctx)
	if err != nil {
		return nil, err
	}
	return settings.CheckAlone(ctx, report)
}

// tell logs what is not in told yet, sets the metric, and returns what is bad.
func (p *Process) tell(found []settings.Finding, err error, told map[string]bool) (bad []settings.Finding) {
	if err != nil && !told["asking"] {
		told["asking"] = true
		p.Log.Warn("some settings cannot be checked yet, and are looked at again", "error", err)
	}
	broken := map[string]int{}
	for _, f := range found {
		if f.OK {
			continue
		}
		bad = append(bad, f)
		level := slog.LevelWarn
		if !f.Note {
			level = slog.LevelError
			broken[f.Rule]++
		}
		if key := f.Rule + " " + f.Of; !told[key] {
			told[key] = true
			p.Log.Log(p.ctx, level, "a setting breaks a rule", "rule", f.Rule, "of", f.Of, "arithmetic", f.Arithmetic, "otherwise", f.Otherwise)
		}
	}
	for _, rule := range settings.Rules() {
		if n := broken[rule]; n > 0 || err == nil { // what could not be asked this time stays as it was
			p.broken.WithLabelValues(rule).Set(float64(n))
		}
	}
	return bad
}

// brokenRules has a series for each rule from the start, so that the first broken one is a change.
func brokenRules(reg prometheus.Registerer) *prometheus.GaugeVec {
	broken := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "setting_rule_broken",
		Help: "What breaks the rule in this process, its database and its topics, as of the check after the start."}, []string{"rule"})
	reg.MustRegister(broken)
	for _, rule := range settings.Rules() {
		broken.WithLabelValues(rule)
	}
	return broken
}
