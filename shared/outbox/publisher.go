package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"example.com/paycast/shared/kafka"
)

var errDeadline = errors.New("the publish deadline has passed")

// holder is the way back for an answer. The subscriber puts it into the message's context, which Router and Forwarder
// keep; the publisher fills it; the subscriber reads it after the ack or nack. Empty means that nobody knows.
type holder struct{ answer answer }

type holderKey struct{}

// publisher stands between the Forwarder and the Kafka publisher. It bounds each send with a deadline and puts the
// classified answer into the message's holder.
type publisher struct {
	inner    message.Publisher
	deadline time.Duration
	m        *metrics
	// slots bounds the sends under way, given up ones included: a publisher that hangs must not pile up goroutines.
	slots  chan struct{}
	causes causes
}

func newPublisher(inner message.Publisher, deadline time.Duration, slots int, m *metrics) *publisher {
	return &publisher{inner: inner, deadline: deadline, m: m, slots: make(chan struct{}, slots)}
}

// Publish sends one message at a time, as the Forwarder does. Its error makes Watermill nack; the subscriber logs.
func (p *publisher) Publish(topic string, msgs ...*message.Message) error {
	for _, m := range msgs {
		h, ok := m.Context().Value(holderKey{}).(*holder)
		if !ok {
			return errors.New("message does not come from the outbox's subscriber")
		}
		h.answer = p.send(topic, m)
		if h.answer.result != resultAccepted {
			return fmt.Errorf("publishing an outbox row: %s: %w", h.answer.code, kafka.ErrReported)
		}
	}
	return nil
}

// Close leaves the inner publisher open: the relay did not make it.
func (p *publisher) Close() error { return nil }

func (p *publisher) send(topic string, m *message.Message) answer {
	ctx, place := kafka.Track(m.Context())
	m.SetContext(ctx)
	timer := time.NewTimer(p.deadline)
	defer timer.Stop()
	select {
	case p.slots <- struct{}{}:
	case <-timer.C:
		return answer{result: resultUnreachable, code: codeClogged, everywhere: true} // nothing was begun
	}
	var givenUp atomic.Bool
	done := make(chan error, 1)
	go func() {
		defer func() { <-p.slots }()
		err := p.publish(topic, m)
		done <- err
		if givenUp.Load() {
			p.m.late(p.causes.explain(topic, classify(err)).result)
		}
	}()
	select {
	case err := <-done:
		a := p.causes.explain(topic, classify(err))
		if a.result == resultAccepted {
			a.partition, a.offset = place.Partition(), place.Offset()
		}
		return a
	case <-timer.C:
		givenUp.Store(true)
		return classify(errDeadline)
	}
}

// publish turns a panic into an error: in this goroutine no router recovers it.
func (p *publisher) publish(topic string, m *message.Message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("publisher panicked: %v", v)
		}
	}()
	return p.inner.Publish(topic, m)
}

// causes remembers the last concrete fault of each destination. Sarama's circuit breakers, one per topic and one per
// partition, answer in its place for ten seconds after three errors.
type causes struct{ last sync.Map }

func (c *causes) explain(topic string, a answer) answer {
	switch {
	case a.code == codeBreaker:
		if cause, ok := c.last.Load(topic); ok {
			return cause.(answer)
		}
	case a.result == resultUnreachable || a.result == resultRefused:
		c.last.Store(topic, a)
	case a.result == resultUnknown && a.code != codeDeadline:
		// Bytes were lost on the way; what the breaker stops after that has not left at all.
		c.last.Store(topic, answer{result: resultUnreachable, code: a.code})
	}
	return a
}

// withHolder is the context of one message.
func withHolder(ctx context.Context) (context.Context, *holder) {
	h := &holder{answer: answer{result: resultUnknown, code: codeNoAnswer}}
	return context.WithValue(ctx, holderKey{}, h), h
}
