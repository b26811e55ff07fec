package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"example.com/paycast/shared/event"
)

// metrics of one relay. The gauges are read from the table, so every relay shows the same; the rest is its own work.
type metrics struct {
	attempts                    *prometheus.CounterVec
	lateAnswers                 *prometheus.CounterVec
	expired, fenced             prometheus.Counter
	claim, claimed, delay       prometheus.Histogram
	pending, oldest, dead, held prometheus.Gauge
	paused                      *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_publish_attempts_total", Help: "Sends by what they came to."}, []string{"destination", "event_type", "result"}),
		lateAnswers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_late_answers_total", Help: "Answers of sends that had been given up at their deadline."}, []string{"result"}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_lease_expired_total", Help: "Rows taken over because their relay did not settle them in time."}),
		fenced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_fenced_settles_total", Help: "Rows that this relay wanted to settle and no longer owned."}),
		claim: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "outbox_claim_duration_seconds", Help: "Duration of a claim, with the wait for its turn; its rows are read afterwards.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 13)}),
		claimed: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "outbox_claimed_messages", Help: "Rows taken by one claim.", Buckets: []float64{0, 1, 10, 50, 100, 250, 500, 1000}}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "outbox_publish_delay_seconds", Help: "Time from an event's transaction until its row was settled as sent.", Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 14)}),
		pending: gauge("outbox_pending_messages", "Rows that are not sent and not dead."),
		oldest:  gauge("outbox_oldest_pending_age_seconds", "Age of the oldest row that is not sent and not dead; 0 without one."),
		dead:    gauge("outbox_dead_messages", "Rows that only an operator can bring on their way again."),
		held:    gauge("outbox_held_keys", "Keys of which rows wait for an earlier one that does not go out."),
		paused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outbox_destination_paused", Help: "1 while a destination refuses events."}, []string{"destination"}),
	}
	for _, c := range []prometheus.Collector{m.attempts, m.lateAnswers, m.expired, m.fenced, m.claim, m.claimed, m.delay,
		m.pending, m.oldest, m.dead, m.held, m.paused} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	// A series that appears only with its first error has no rate for that error.
	for _, eventType := range event.Types() {
		for _, r := range []result{resultAccepted, resultRejected, resultUnreachable, resultUnknown, resultRefused, resultCrashed} {
			m.attempts.WithLabelValues(event.Topic, eventType, string(r))
		}
	}
	for _, r := range []result{resultAccepted, resultRejected, resultUnreachable, resultUnknown, resultRefused} {
		m.lateAnswers.WithLabelValues(string(r))
	}
	m.paused.WithLabelValues(event.Topic)
	return m, nil
}

func (m *metrics) attempt(destination, eventType string, r result) {
	m.attempts.WithLabelValues(destination, eventType, string(r)).Inc()
}

func (m *metrics) late(r result) { m.lateAnswers.WithLabelValues(string(r)).Inc() }

// unsent reads the gauges from three indexes. The first holds the whole backlog and all that is asked of it, so that most
// rows are counted without being read.
const unsent = `
with due as (
  select count(*) as rows, min(created_at) as oldest
  from t_outbox_event
  where sent_at is null and held_by is null and next_retry_at is not null
),
held as (
  select count(*) as rows, min(created_at) as oldest, count(distinct message_key) as keys
  from t_outbox_event
  where held_by is not null
),
dead as (
  select count(*) as rows
  from t_outbox_event
  where next_retry_at is null and not skipped
)
select due.rows + held.rows, coalesce(extract(epoch from now() - least(due.oldest, held.oldest)), 0)::float8, dead.rows, held.keys
from due, held, dead`

const pausedDestinations = `select destination, state = 'PAUSED' from t_outbox_destination`

// sampleEvery is the usual time between two readings of the gauges.
const sampleEvery = 5 * time.Second

// sample keeps the gauges fresh until ctx ends. A reading that takes long, because the backlog is, is made less often.
func (r *Relay) sample(ctx context.Context) error {
	for ctx.Err() == nil {
		start := time.Now()
		if err := errors.Join(r.read(ctx), r.mend(ctx)); err != nil && ctx.Err() == nil {
			r.c.Log.Warn("the outbox's gauges are stale, or rows edited by hand not all mended", "error", err)
		}
		pause(ctx, max(sampleEvery, 20*time.Since(start)))
	}
	return nil
}

func (r *Relay) read(ctx context.Context) error {
	ctx, cancel := r.answerWithin(ctx)
	defer cancel()
	var pending, dead, held int64
	var oldest float64
	if err := r.db.QueryRow(ctx, unsent).Scan(&pending, &oldest, &dead, &held); err != nil {
		return fmt.Errorf("counting unsent outbox rows: %w", err)
	}
	r.m.pending.Set(float64(pending))
	r.m.oldest.Set(oldest)
	r.m.dead.Set(float64(dead))
	r.m.held.Set(float64(held))
	rows, err := r.db.Query(ctx, pausedDestinations)
	if err != nil {
		return fmt.Errorf("reading paused destinations: %w", err)
	}
	var destination string
	var isPaused bool
	_, err = pgx.ForEachRow(rows, []any{&destination, &isPaused}, func() error {
		value := 0.0
		if isPaused {
			value = 1
		}
		r.m.paused.WithLabelValues(destination).Set(value)
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading paused destinations: %w", err)
	}
	return nil
}
