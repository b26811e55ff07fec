package notify

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"
)

// notBegun is the result of a claim that was given back.
const notBegun = "not_begun"

// metrics are the sender's.
type metrics struct {
	attempts *prometheus.CounterVec
	expired  prometheus.Counter
	fenced   prometheus.Counter
	unsent   *prometheus.GaugeVec
	oldest   prometheus.Gauge
	paused   prometheus.Gauge
}

// newMetrics starts every series at zero, so that the first increase is seen as one.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notify_attempts_total", Help: "Claimed commands by what came of the claim.",
		}, []string{"result"}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "notify_lease_expired_total", Help: "Commands whose sender died or stood still with them.",
		}),
		fenced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "notify_fenced_settles_total", Help: "Settles that changed nothing because the command had been taken over.",
		}),
		unsent: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "notify_unsent_commands", Help: "Commands that are not SENT, by status.",
		}, []string{"status"}),
		oldest: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "notify_oldest_unsent_age_seconds", Help: "Age of the oldest command that is neither SENT nor FAILED.",
		}),
		paused: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "notify_sending_paused", Help: "1 while SMS_RATE is 0.",
		}),
	}
	for _, result := range []string{string(Sent), string(Retry), string(Unknown), string(Failed), notBegun} {
		m.attempts.WithLabelValues(result)
	}
	m.show(nil)
	reg.MustRegister(m.attempts, m.expired, m.fenced, m.unsent, m.oldest, m.paused)
	return m
}

func (m *metrics) attempt(result string) { m.attempts.WithLabelValues(result).Inc() }

func (m *metrics) show(sample []unsent) {
	for _, s := range statuses {
		if s != Sent {
			m.unsent.WithLabelValues(string(s)).Set(0)
		}
	}
	oldest := 0.0
	for _, u := range sample {
		m.unsent.WithLabelValues(string(u.Status)).Set(u.Rows)
		if u.Status != Failed {
			oldest = max(oldest, u.Oldest)
		}
	}
	m.oldest.Set(oldest)
}

// sample keeps the gauges true until ctx ends. While the database is away they keep their last value; readiness tells.
func (m *metrics) sample(ctx context.Context, db *gorm.DB, every time.Duration) error {
	for {
		if all, err := countUnsent(ctx, db); err == nil {
			m.show(all)
		}
		if !sleep(ctx, every) {
			return nil
		}
	}
}
