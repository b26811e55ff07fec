package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/eapache/go-resiliency/breaker"
	"golang.org/x/sync/singleflight"

	"example.com/paycast/shared/event"
)

// PublisherConfig says where to publish. Everything that a guarantee depends on is fixed inside.
type PublisherConfig struct {
	Brokers  string // host:port, comma-separated
	ClientID string // appears in the broker's logs
	Log      *slog.Logger
}

// Publisher publishes messages made by Message. It connects on first use, so that a process can start while Kafka is
// down; an error of connecting is an ordinary answer of Publish.
type Publisher struct {
	config PublisherConfig

	connecting singleflight.Group
	mu         sync.Mutex
	current    *client // nil: connect first
	closed     bool
	finishing  sync.WaitGroup // clients that are being closed
}

// client is one connection to the cluster. Watermill's publisher must not be closed while somebody publishes.
type client struct {
	publisher *wkafka.Publisher
	users     sync.WaitGroup
}

// ErrClosed is the answer of a publisher after Close.
var ErrClosed = errors.New("publisher is closed")

// NewPublisher opens no connection; see Publisher.
func NewPublisher(c PublisherConfig) (*Publisher, error) {
	if len(BrokerList(c.Brokers)) == 0 {
		return nil, errors.New("no kafka brokers given")
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return &Publisher{config: c}, nil
}

// Publish sends each message to the topic and waits for all in-sync replicas. It stops at the first failure, and an
// error does not mean that nothing was stored. It can take longer than any deadline of the caller: sarama knows none.
// Without messages it only connects, if it has no connection yet.
func (p *Publisher) Publish(topic string, msgs ...*message.Message) error {
	c, err := p.use()
	if err != nil {
		return fmt.Errorf("connecting to kafka: %w", err)
	}
	defer c.users.Done()
	err = c.publisher.Publish(topic, msgs...)
	if errors.Is(err, sarama.ErrOutOfBrokers) || errors.Is(err, breaker.ErrBreakerOpen) {
		p.retire(c)
	}
	return err
}

// LookUp asks whether the topic is there, within 10 s, and sends nothing.
func (p *Publisher) LookUp(ctx context.Context, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := HighWatermarks(ctx, p.config.Brokers, topic)
	return err
}

// Close waits for the sends under way, but not longer than one round trip to a broker may take: the client's own retries
// could keep a process from ending in time. The error says that sends were left behind; their outcome is unknown.
func (p *Publisher) Close() error {
	p.mu.Lock()
	p.closed = true
	c := p.current
	p.mu.Unlock()
	p.retire(c)
	finished := make(chan struct{})
	go func() {
		p.finishing.Wait()
		close(finished)
	}()
	select {
	case <-finished:
		return nil
	case <-time.After(dialTimeout + readTimeout):
		return errors.New("closing the kafka publisher: sends are still under way")
	}
}

// retire lets the next Publish connect anew. A client that has lost all brokers, or a topic, keeps a circuit breaker for
// each topic and partition: it would go on refusing for ten seconds after the trouble is over, partition by partition.
// What the old client is still sending it finishes.
func (p *Publisher) retire(c *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c == nil || p.current != c {
		return // somebody else has done it
	}
	p.current = nil
	p.finishing.Go(func() {
		c.users.Wait()
		if err := c.publisher.Close(); err != nil {
			p.config.Log.Warn("closing a kafka client", "error", err)
		}
	})
}

// use gives a client; its user calls users.Done. All callers that wait for a connection get the answer of the same try:
// one after the other, they would wait for as many tries as there are callers.
func (p *Publisher) use() (*client, error) {
	for {
		p.mu.Lock()
		c, closed := p.current, p.closed
		if c != nil && !closed {
			c.users.Add(1)
		}
		p.mu.Unlock()
		if closed {
			return nil, ErrClosed
		}
		if c != nil {
			return c, nil
		}
		if _, err, _ := p.connecting.Do("", func() (any, error) { return nil, p.connect() }); err != nil {
			return nil, err
		}
	}
}

func (p *Publisher) connect() error {
	inner, err := wkafka.NewPublisher(wkafka.PublisherConfig{
		Brokers:               BrokerList(p.config.Brokers),
		Marshaler:             marshaler{},
		OverwriteSaramaConfig: publisherConfig(p.config.ClientID),
	}, Logger(p.config.Log))
	if err != nil {
		return err
	}
	p.mu.Lock()
	closed, current := p.closed, p.current
	if !closed && current == nil {
		p.current = &client{publisher: inner}
	}
	p.mu.Unlock()
	if closed || current != nil {
		return inner.Close() // it came too late
	}
	return nil
}

// unknownOffset stands in a record whose offset no answer has named.
const unknownOffset = -1

// marshaler turns a message into exactly the record that it wraps, and remembers sarama's message for Track.
type marshaler struct{}

func (marshaler) Marshal(topic string, m *message.Message) (*sarama.ProducerMessage, error) {
	r, err := Record(m)
	if err != nil {
		return nil, err
	}
	out := &sarama.ProducerMessage{
		Topic:   topic,
		Key:     sarama.ByteEncoder(r.Key),
		Headers: make([]sarama.RecordHeader, len(r.Headers)),
		// A retry that the broker knew already can be answered without an offset.
		Offset: unknownOffset,
	}
	if r.Value != nil {
		out.Value = sarama.ByteEncoder(r.Value)
	}
	size := 0
	for _, h := range r.Headers {
		size += len(h.Key)
	}
	names := make([]byte, 0, size) // all in one allocation
	for i, h := range r.Headers {
		names = append(names, h.Key...)
		out.Headers[i] = sarama.RecordHeader{Key: names[len(names)-len(h.Key):], Value: h.Value}
	}
	if p, ok := m.Context().Value(placeKey{}).(*Place); ok {
		p.sent = out
	}
	return out, nil
}

// Place is where an accepted record stands. It may be read after Publish has returned nil, and only then.
type Place struct{ sent *sarama.ProducerMessage }

type placeKey struct{}

// Track returns a context for a message; after its send, the place tells partition and offset.
func Track(ctx context.Context) (context.Context, *Place) {
	p := &Place{}
	return context.WithValue(ctx, placeKey{}, p), p
}

// Partition is -1 when unknown.
func (p *Place) Partition() int32 {
	if p.sent == nil {
		return -1
	}
	return p.sent.Partition
}

// Offset is -1 when the broker confirmed the record without naming its offset.
func (p *Place) Offset() int64 {
	if p.sent == nil {
		return unknownOffset
	}
	return p.sent.Offset
}

// fromSarama is a consumed record as the rest of the system sees it.
func fromSarama(m *sarama.ConsumerMessage) event.Record {
	r := event.Record{
		Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Time: m.Timestamp.UTC(),
		Key: m.Key, Value: m.Value, Headers: make([]event.Header, 0, len(m.Headers)),
	}
	for _, h := range m.Headers {
		if h != nil {
			r.Headers = append(r.Headers, event.Header{Key: string(h.Key), Value: h.Value})
		}
	}
	return r
}
