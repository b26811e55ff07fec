package consumer

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/telemetry"
)

// Batched is for an effect in the service's own database that is written for many events in one go. They come in the
// order of their partition; no two of them are the same event. An answer other than nil is about one message, so it
// counts only when there is one: with more, everything is rolled back and the events come again in smaller groups. All
// of InTransaction holds here too.
func Batched(fn func(ctx context.Context, tx *gorm.DB, events []event.Event) error) Handler {
	return batched{inTransaction{func(ctx context.Context, tx *gorm.DB, e event.Event) error { return fn(ctx, tx, []event.Event{e}) }}, fn}
}

type batched struct {
	inTransaction
	fn func(ctx context.Context, tx *gorm.DB, events []event.Event) error
}

// together is a Handler whose effects can share a transaction.
type together interface {
	together(ctx context.Context, c *consumer, tx *gorm.DB, ds []inbox.Delivery) ([]inbox.Outcome, error)
}

func (h batched) together(ctx context.Context, c *consumer, tx *gorm.DB, ds []inbox.Delivery) ([]inbox.Outcome, error) {
	events, outcomes := make([]event.Event, len(ds)), make([]inbox.Outcome, len(ds))
	for i, d := range ds {
		events[i], outcomes[i] = d.Event, inbox.Applied
	}
	ctx, span := c.batchSpan(ctx, events)
	defer span.End()
	err := h.fn(ctx, tx, events)
	if err != nil {
		span.SetStatus(codes.Error, "")
	}
	return outcomes, err
}

func (h inTransaction) together(ctx context.Context, c *consumer, tx *gorm.DB, ds []inbox.Delivery) ([]inbox.Outcome, error) {
	outcomes := make([]inbox.Outcome, len(ds))
	for i := range ds {
		ctx, span := c.span(ctx, ds[i].Event)
		ctx, ds[i].Result = withDelivery(ctx, ds[i])
		var err error
		if outcomes[i], err = outcome(h.fn(ctx, tx, ds[i].Event)); err != nil {
			span.SetStatus(codes.Error, "")
		}
		span.End()
		if err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

// batchSpan is one span for the work on many events. It belongs to as many traces, so it begins its own and has a link
// to each of theirs.
func (c *consumer) batchSpan(ctx context.Context, events []event.Event) (context.Context, trace.Span) {
	var links []trace.Link
	for _, e := range events {
		if cause := trace.SpanContextFromContext(telemetry.WithTraceParent(ctx, e.TraceParent)); cause.IsValid() {
			links = append(links, trace.Link{SpanContext: cause})
		}
	}
	return c.tracer.Start(ctx, "consume batch", trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...),
		trace.WithAttributes(telemetry.Group.String(c.Group), telemetry.Messages.Int(len(events))))
}

// Member is a running consumer as seen by whoever brings it its records in another way than Run does: shared/batch.
type Member struct{ c *consumer }

// Serve is Run with records brought by consume, which runs until ctx ends and has at most size of a partition in hand at
// a time. It refuses a handler whose effects cannot share a transaction.
func Serve(p *service.Process, cfg Config, size int, h Handler, consume func(ctx context.Context, m Member) error) error {
	if _, ok := h.(together); !ok {
		return errNotTogether
	}
	return run(p, cfg, size, h, func(c *consumer) func(context.Context) error {
		return func(ctx context.Context) error { return consume(ctx, Member{c}) }
	})
}

// Subscriber says as whom to read.
func (m Member) Subscriber() kafka.SubscriberConfig { return m.c.subscriber() }

// Topics are those of the group.
func (m Member) Topics() []string { return m.c.topics() }

// Messages yields a topic's messages until stop ends. Kafka may be down when the process starts: it tries again. The
// subscription itself lasts as long as work.
func (m Member) Messages(stop, work context.Context, s message.Subscriber, topic string) iter.Seq[*message.Message] {
	return m.c.subscribe(stop, work, s, topic)
}

// Deliver takes one record to a committed decision, as Run does. An error means that nothing is recorded and that the
// record must come again, after a pause.
func (m Member) Deliver(ctx context.Context, r event.Record) error { return m.c.deliver(ctx, r) }

// Together takes those records that are plain new to a committed effect, all of them in one transaction, and says which
// those were. The others, and what cannot be read, are for Deliver, afterwards and in their order. With an error nothing
// is recorded about any of them.
func (m Member) Together(ctx context.Context, records []event.Record) (done []bool, err error) {
	c := m.c
	ds, at := make([]inbox.Delivery, 0, len(records)), make([]int, 0, len(records))
	for i, r := range records {
		e, err := event.Decode(r)
		d := inbox.Delivery{Group: c.Group, Event: e, Record: r}
		if err == nil && !inbox.MayBeArchived(d) { // only Deliver looks there
			ds, at = append(ds, c.addressed(d)), append(at, i)
		}
	}
	done = make([]bool, len(records))
	if len(ds) == 0 {
		return done, nil
	}
	c.partitions.enter(records[0])
	if may, err := c.mayShare(ctx, ds[0]); !may || err != nil {
		return done, err
	}
	fresh, outcomes, err := c.together(ctx, ds)
	if err != nil {
		if c.partitions.watched(ds[0].Record) {
			c.putDown(ctx, ds[0])
		}
		return nil, err
	}
	c.partitions.ran(ds[0].Record)
	c.partitions.passed(records[len(records)-1])
	moved := false
	for i := range ds {
		if !fresh[i] {
			continue
		}
		done[at[i]] = true
		c.metrics.done(ds[i].Event.Type, outcomes[0])
		moved = moved || outcomes[0] != inbox.Ignored
		outcomes = outcomes[1:]
	}
	if moved {
		c.breaker.succeeded()
	}
	return done, nil
}

func (c *consumer) together(ctx context.Context, ds []inbox.Delivery) (fresh []bool, outcomes []inbox.Outcome, err error) {
	defer recoverPanic(&err)
	ctx, cancel := context.WithTimeout(ctx, c.HandlerTimeout)
	defer cancel()
	err = transaction(ctx, c.DB, func(tx *gorm.DB) error {
		outcomes = nil
		fresh, err = inbox.Together(ctx, tx, ds, func(tx *gorm.DB, chosen []inbox.Delivery) ([]inbox.Outcome, error) {
			outcomes, err = c.handler.(together).together(ctx, c, tx, chosen) // Serve has looked
			return outcomes, err
		})
		return err
	})
	return fresh, outcomes, err
}

var errNotTogether = errors.New("consumer: the effects of this handler cannot share a transaction; use InTransaction or Batched")

// NobodysFault says that an error of Deliver or Together is not the messages': trying fewer of them is no help.
func NobodysFault(err error) bool { return class(err) == classDown }

// Pause shows a partition as standing still, and says for how long to wait before the next try, the failed-th.
func (m Member) Pause(partition string, failed int, err error) time.Duration {
	m.c.pauses.set(partition, err)
	m.c.log.Warn("partition paused", "group", m.c.Group, "partition", partition, "error", scrub(err), "tries", failed)
	return min(m.c.backoff(failed), maxPause)
}

// GoOn takes a pause back.
func (m Member) GoOn(partition string) { m.c.pauses.clear(partition) }
