package batch

import (
	"context"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"example.com/paycast/shared/kafka"
)

// member is what sarama calls for each partition of a session.
type member struct {
	*Subscriber
	out chan<- *message.Message
}

func (member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// flight is a record that has been given out and not yet been settled.
type flight struct {
	record *sarama.ConsumerMessage
	m      *message.Message
	land   context.CancelFunc // ends the message's context
}

// ConsumeClaim gives out the partition's messages until the session ends, and then returns without waiting for anybody:
// as long as one member holds on to a partition, no member of the group gets anything.
func (g member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	ctx := session.Context()
	slots := make(chan struct{}, g.window)
	flights := make(chan flight, g.window)
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		g.settle(session, flights, slots)
	}()
	defer func() {
		close(flights)
		<-settled
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case slots <- struct{}{}:
		}
		select {
		case <-ctx.Done():
			return nil
		case record, open := <-claim.Messages():
			if !open {
				return nil
			}
			f := takeOff(ctx, record)
			flights <- f // a slot stands for a place in it
			if !g.give(ctx, f.m) {
				return nil
			}
		}
	}
}

func takeOff(ctx context.Context, record *sarama.ConsumerMessage) flight {
	f := flight{record: record, m: kafka.Consumed(record)}
	ctx, f.land = context.WithCancel(ctx)
	f.m.SetContext(ctx)
	return f
}

// give reports whether somebody took the message before the session ended.
func (g member) give(ctx context.Context, m *message.Message) bool {
	select {
	case g.out <- m:
		return true
	case <-ctx.Done():
		return false
	}
}

// settle marks offsets in order, so that what is committed is always a prefix without a hole. When the session ends it
// still marks what has been acked by then: the session commits it on its way out.
func (g member) settle(session sarama.ConsumerGroupSession, flights <-chan flight, slots <-chan struct{}) {
	prefix := true
	for f := range flights {
		if prefix = prefix && g.acked(session.Context(), f); prefix {
			session.MarkMessage(f.record, "")
		}
		f.land()
		<-slots
	}
}

// acked waits for the ack of one message, sending it again after each nack, and reports whether it came in time.
func (g member) acked(ctx context.Context, f flight) bool {
	for {
		select {
		case <-f.m.Acked():
			return true
		case <-f.m.Nacked():
		case <-ctx.Done():
			select {
			case <-f.m.Acked():
				return true
			default:
				return false
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(resend):
		}
		again := takeOff(ctx, f.record)
		defer again.land()
		if f.m = again.m; !g.give(ctx, f.m) {
			return false
		}
	}
}

// resend is the pause before a nacked message comes again.
const resend = 100 * time.Millisecond
