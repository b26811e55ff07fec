package batch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"example.com/paycast/shared/kafka"
)

// Subscriber is a Watermill subscriber that does not wait for an ack before it gives the next message: up to a window
// of messages of each partition are out at once, in order.
//
//   - An offset is committed only when its message and all before it in the partition are acked.
//   - A message that is nacked comes again, with the same record, once all before it are acked. Later ones may have
//     come meanwhile; at a window of 1 there are none.
//   - When the partition is taken away, the contexts of its messages end, and this member lets go at once, whoever
//     still holds a message. Acks after that count for nothing: the next owner gets what was not acked before.
type Subscriber struct {
	config kafka.SubscriberConfig
	window int
	log    *slog.Logger

	closing context.Context
	close   context.CancelFunc
	mu      sync.Mutex // orders Subscribe and Close
	running sync.WaitGroup
}

var errClosed = errors.New("the subscriber is closed")

// NewSubscriber gives up to window unacked messages of each partition; at least 1.
func NewSubscriber(c kafka.SubscriberConfig, window int) (*Subscriber, error) {
	if window < 1 {
		return nil, errors.New("the window must be at least one message")
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	s := &Subscriber{config: c, window: window, log: c.Log}
	s.closing, s.close = context.WithCancel(context.Background())
	return s, nil
}

// Subscribe joins the group for one topic, until ctx ends or Close. It fails when Kafka cannot be reached.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil {
		return nil, errClosed
	}
	group, err := kafka.NewGroup(s.config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closing, cancel)
	out := make(chan *message.Message)
	s.running.Go(func() {
		defer close(out)
		defer cancel()
		defer stop()
		s.join(ctx, group, topic, out)
	})
	return out, nil
}

// join is a member of the group, session after session, until ctx ends.
func (s *Subscriber) join(ctx context.Context, group sarama.ConsumerGroup, topic string, out chan<- *message.Message) {
	var reading sync.WaitGroup
	reading.Go(func() {
		for err := range group.Errors() { // unread errors would stop the client
			s.log.Warn("reading from kafka", "group", s.config.Group, "topic", topic, "error", err)
		}
	})
	for ctx.Err() == nil {
		err := group.Consume(ctx, []string{topic}, member{s, out})
		if err == nil || ctx.Err() != nil {
			continue
		}
		s.log.Warn("joining the group", "group", s.config.Group, "topic", topic, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(rejoin):
		}
	}
	if err := group.Close(); err != nil {
		s.log.Warn("leaving the group", "group", s.config.Group, "topic", topic, "error", err)
	}
	reading.Wait()
}

// rejoin is the pause before the next try to join.
const rejoin = 500 * time.Millisecond

// Close leaves the group and commits the acked prefix of each partition. It returns when all channels are closed.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.close()
	s.mu.Unlock()
	s.running.Wait()
	return nil
}
