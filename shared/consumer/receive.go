package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/telemetry"
)

// drain is how long running handlers may go on after the signal. It lies within the time that service.Process waits.
const drain = 12 * time.Second

// consume reads both topics of the group until ctx ends, then lets what runs come to its end. The subscriber hands out
// one message of a partition at a time, so each gets a goroutine of its own and order within a partition stays.
func (c *consumer) consume(ctx context.Context) error {
	subscriber, err := kafka.NewSubscriber(c.subscriber())
	if err != nil {
		return fmt.Errorf("making the subscriber: %w", err)
	}
	// The work has a context of its own: the signal must not cut off handlers that are about to commit.
	work, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()
	var topics, running sync.WaitGroup
	for _, topic := range c.topics() {
		topics.Go(func() {
			for m := range c.subscribe(ctx, work, subscriber, topic) {
				running.Go(func() { c.receive(ctx, work, subscriber, m) })
			}
		})
	}
	topics.Wait()
	timer := time.AfterFunc(drain, cutOff)
	running.Wait()
	timer.Stop()
	return subscriber.Close() // commits the offsets of what was acked
}

func (c *consumer) subscriber() kafka.SubscriberConfig {
	return kafka.SubscriberConfig{Brokers: c.Brokers, ClientID: c.Group, Group: c.Group, Session: c.Session, Log: c.log}
}

// topics are the one that all groups read and the one of this group alone.
func (c *consumer) topics() []string { return []string{event.Topic, event.RedeliveryTopic(c.Group)} }

// subscribe yields a topic's messages until ctx ends. Kafka may be down when the process starts.
func (c *consumer) subscribe(ctx, work context.Context, s message.Subscriber, topic string) func(yield func(*message.Message) bool) {
	return func(yield func(*message.Message) bool) {
		var messages <-chan *message.Message
		for failed := 1; ; failed++ {
			var err error
			if messages, err = s.Subscribe(work, topic); err == nil {
				break
			}
			c.log.Warn("subscribing", "group", c.Group, "topic", topic, "error", err)
			c.pauses.set("topic "+topic, err)
			if !sleep(ctx, min(c.backoff(failed), maxPause)) {
				return
			}
		}
		c.pauses.clear("topic " + topic)
		for {
			select {
			case <-ctx.Done():
				return
			case m, open := <-messages:
				if !open || !yield(m) {
					return
				}
			}
		}
	}
}

// receive takes one message from a partition to a committed decision, and only then acks it.
//
// While nothing can be recorded it keeps the message, and with it the partition: a nack would only bring the same
// message again, without a pause. When the process is told to stop it leaves the message unacked; it comes again.
//
// FLOW 5/9
func (c *consumer) receive(stop, work context.Context, from *kafka.Subscriber, m *message.Message) {
	r, err := kafka.Record(m)
	if err != nil { // made by another subscriber than ours: a fault of this program
		c.log.Error("receiving", "group", c.Group, "error", err)
		return
	}
	partition, lost := fmt.Sprintf("%s/%d", r.Topic, r.Partition), from.Lost(r.Topic, r.Partition)
	defer c.pauses.clear(partition)
	for failed := 1; ; failed++ {
		err := c.deliver(work, r)
		if err == nil {
			m.Ack()
			return
		}
		if stop.Err() != nil {
			return
		}
		e, _ := event.Decode(r) // of what cannot be read the line says less
		c.log.WarnContext(telemetry.WithTraceParent(work, e.TraceParent), "partition paused", "group", c.Group, "topic", r.Topic,
			"partition", r.Partition, "offset", r.Offset, "event_id", e.ID, "order_no", e.AggregateID, "error", scrub(err), "tries", failed)
		c.pauses.set(partition, err)
		select {
		case <-stop.Done():
			return
		case <-lost: // the group waits for us to let go; this ack marks nothing, and the next owner gets the message
			m.Ack()
			return
		case <-time.After(min(c.backoff(failed), maxPause)):
		}
	}
}

// maxPause bounds how long a partition stays paused after the trouble has gone.
const maxPause = 5 * time.Second

// deliver decides about one record and commits the decision. An error means that nothing is recorded.
func (c *consumer) deliver(ctx context.Context, r event.Record) error {
	c.partitions.enter(r)
	err := c.answer(ctx, r)
	if err == nil {
		c.partitions.passed(r)
	}
	return err
}

func (c *consumer) answer(ctx context.Context, r event.Record) error {
	e, err := event.Decode(r)
	d := c.addressed(inbox.Delivery{Group: c.Group, Event: e, Record: r, ReplayID: replayOf(c.Group, r)})
	if err != nil {
		return c.park(ctx, d, err)
	}
	ctx, span := c.span(ctx, e)
	defer span.End()
	out, err := c.carefully(ctx, d)
	if err != nil {
		span.SetStatus(codes.Error, "")
		return err
	}
	c.metrics.done(e.Type, out)
	span.SetAttributes(telemetry.Result.String(string(out)))
	c.log.DebugContext(ctx, "event handled", "event_id", e.ID, "event_type", e.Type, "order_no", e.AggregateID, "group", c.Group, "result", out)
	if out == inbox.Conflict {
		c.log.ErrorContext(ctx, "an event id came with another body; it is a dead letter and the first one stands",
			"event_id", e.ID, "order_no", e.AggregateID, "group", c.Group)
	}
	return nil
}

// addressed adds what should become of the delivery as a dead letter.
func (c *consumer) addressed(d inbox.Delivery) inbox.Delivery {
	d.Owner, d.SkipDead = c.LetterOwner, slices.Contains(c.SkipDead, d.Event.Type)
	return d
}

// park keeps what cannot be read, byte for byte, so that the partition moves on.
func (c *consumer) park(ctx context.Context, d inbox.Delivery, why error) error {
	t := inbox.Trouble{Class: inbox.ClassUndecodable, Code: "undecodable", Text: scrub(why)}
	switch {
	case errors.Is(why, event.ErrUnknownType):
		t.Code = "unknown_type"
	case errors.Is(why, event.ErrUnsupportedVersion):
		t.Code = "unsupported_version"
	case d.Record.Value == nil:
		t.Code = "tombstone"
	case len(d.Record.Value) == 0:
		t.Code = "empty"
	}
	ctx, cancel := context.WithTimeout(ctx, recordMargin)
	defer cancel()
	err := postgres.Transaction(ctx, c.DB, func(tx *gorm.DB) error { return inbox.Park(ctx, tx, d, t) })
	if err != nil {
		return fmt.Errorf("parking a record: %w", err)
	}
	c.metrics.done(unknownType, inbox.Dead)
	c.log.Error("a record cannot be read; it is a dead letter", "group", c.Group, "topic", d.Record.Topic,
		"partition", d.Record.Partition, "offset", d.Record.Offset, "code", t.Code, "reason", t.Text)
	return nil
}

// span continues the trace of the request that caused the event.
func (c *consumer) span(ctx context.Context, e event.Event) (context.Context, trace.Span) {
	ctx = telemetry.WithTraceParent(ctx, e.TraceParent)
	return c.tracer.Start(ctx, "consume "+e.Type, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		telemetry.EventType.String(e.Type), telemetry.Group.String(c.Group)))
}

// sleep reports whether it slept to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
