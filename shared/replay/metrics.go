package replay

import "github.com/prometheus/client_golang/prometheus"

// Metrics count what becomes of replayed messages.
type Metrics struct{ messages *prometheus.CounterVec }

// NewMetrics registers replay_messages_total, with every series at 0.
func NewMetrics(reg prometheus.Registerer, group string) *Metrics {
	m := &Metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "replay_messages_total", ConstLabels: prometheus.Labels{"group": group},
		Help: "Replayed messages that were settled, by what became of them.",
	}, []string{"result"})}
	for _, result := range []string{"applied", "superseded", "ignored", "refused", "discarded", "dead", "retry",
		AlreadyApplied, Decided, Waiting, Conflict, Unreadable, Altered} {
		m.messages.WithLabelValues(result)
	}
	reg.MustRegister(m.messages)
	return m
}

func (m *Metrics) count(result string, n int) { m.messages.WithLabelValues(result).Add(float64(n)) }
