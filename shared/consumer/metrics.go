package consumer

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
)

// unknownType is the label of what cannot be read.
const unknownType = "unknown"

type metrics struct {
	group      string
	messages   *prometheus.CounterVec
	duplicates prometheus.Counter
	lag        *prometheus.GaugeVec
	oldest     prometheus.Gauge
	letters    prometheus.Gauge
	lane       *prometheus.GaugeVec
	expired    prometheus.Counter
	fenced     prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, group string, paused func() float64) *metrics {
	labels := prometheus.Labels{"group": group}
	m := &metrics{
		group: group,
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "consumer_messages_total", ConstLabels: labels,
			Help: "Decisions about deliveries, from partitions and from the retry lane."}, []string{"event_type", "result"}),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{Name: "consumer_dedup_hits_total", ConstLabels: labels,
			Help: "Deliveries of events that the consume log knew already."}),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "consumer_lag_messages", ConstLabels: labels,
			Help: "Records of the topic that the group has yet to ack."}, []string{"partition"}),
		oldest: prometheus.NewGauge(prometheus.GaugeOpts{Name: "consumer_oldest_message_age_seconds", ConstLabels: labels,
			Help: "Age of the oldest record that the group has yet to ack."}),
		letters: prometheus.NewGauge(prometheus.GaugeOpts{Name: "consumer_dead_letters", ConstLabels: labels,
			Help: "Dead letters that nobody has decided about."}),
		lane: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "consumer_unfinished_messages", ConstLabels: labels,
			Help: "Rows of the consume log that are not finished."}, []string{"status"}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{Name: "consumer_lease_expired_total", ConstLabels: labels,
			Help: "Messages of the retry lane taken over from a holder whose lease ran out."}),
		fenced: prometheus.NewCounter(prometheus.CounterOpts{Name: "consumer_fenced_settles_total", ConstLabels: labels,
			Help: "Settles that changed nothing because another process had taken the message over."}),
	}
	// Every series exists from the start, so that its first increase is seen.
	outcomes := []inbox.Outcome{inbox.Applied, inbox.Superseded, inbox.Ignored, inbox.Duplicate, inbox.Conflict,
		inbox.Waiting, inbox.Retry, inbox.Refused, inbox.Dead}
	for _, t := range event.Types() {
		for _, out := range outcomes {
			m.messages.WithLabelValues(t, string(out))
		}
	}
	m.messages.WithLabelValues(unknownType, string(inbox.Dead))
	for p := range event.Partitions {
		m.lag.WithLabelValues(strconv.Itoa(p))
	}
	for _, s := range []inbox.Status{inbox.StatusProcessing, inbox.StatusRetry, inbox.StatusWaiting, inbox.StatusDead} {
		m.lane.WithLabelValues(string(s))
	}
	reg.MustRegister(m.messages, m.duplicates, m.lag, m.oldest, m.letters, m.lane, m.expired, m.fenced,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "consumer_paused_partitions", ConstLabels: labels,
			Help: "Partitions that this process holds still because nothing can be recorded."}, paused))
	return m
}

func (m *metrics) done(eventType string, out inbox.Outcome) {
	m.messages.WithLabelValues(eventType, string(out)).Inc()
	if out == inbox.Duplicate {
		m.duplicates.Inc()
	}
}
