package reconcile

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	drift *prometheus.GaugeVec
	runs  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		drift: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "reconcile_drift_items",
			Help: "What does not agree, by kind of finding, in the last run that could ask everybody.",
		}, []string{"kind"}),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reconcile_runs_total",
			Help: "Runs that ended, by result: agree, differ or failed. Failed runs say nothing about agreement.",
		}, []string{"result"}),
	}
	reg.MustRegister(m.drift, m.runs)
	for kind := range nextStep {
		m.drift.WithLabelValues(kind)
	}
	for _, result := range []string{Agree, Differ, Failed} {
		m.runs.WithLabelValues(result)
	}
	return m
}

func (m *metrics) observe(r Run) {
	m.runs.WithLabelValues(r.Status).Inc()
	if r.Status == Failed {
		return
	}
	counts := map[string]int{}
	for _, f := range r.Findings {
		counts[f.Kind]++
	}
	for kind := range nextStep {
		m.drift.WithLabelValues(kind).Set(float64(counts[kind]))
	}
}
