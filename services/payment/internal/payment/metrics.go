package payment

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/paycast/shared/webhook"
)

type metrics struct {
	callbacks *prometheus.CounterVec
	incidents *prometheus.CounterVec
}

// newMetrics starts every series at zero, so that the first increase is seen as one.
func newMetrics(reg *prometheus.Registry) *metrics {
	m := &metrics{
		callbacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "payment_callbacks_total", Help: "Callbacks by what came of them. Copies that arrive at the same moment count once.",
		}, []string{"verdict"}),
		incidents: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "payment_incidents_total", Help: "New incidents, each waiting for a person, by kind.",
		}, []string{"kind"}),
	}
	for _, v := range []verdict{
		verdictPaid, verdictAlreadyPaid, verdictClosed, verdictAlreadyClosed, verdictFailed, verdictUnknownType, verdictIncident,
	} {
		m.callbacks.WithLabelValues(string(v))
	}
	for _, v := range []string{"repeated", "refused_body", "refused_content", "refused_reuse", "error"} {
		m.callbacks.WithLabelValues(v)
	}
	for _, reason := range webhook.Reasons() {
		m.callbacks.WithLabelValues("refused_" + string(reason))
	}
	for _, kind := range incidentKinds() {
		m.incidents.WithLabelValues(kind)
	}
	reg.MustRegister(m.callbacks, m.incidents)
	return m
}

func (m *metrics) callback(verdict string) { m.callbacks.WithLabelValues(verdict).Inc() }

func (m *metrics) incident(kind string) { m.incidents.WithLabelValues(kind).Inc() }

// refused counts why a signature was not accepted. The reason goes here and not into the answer.
func (m *metrics) refused(err error) {
	var reason webhook.Refused
	if errors.As(err, &reason) {
		m.callback("refused_" + string(reason))
	}
}
