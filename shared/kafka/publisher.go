package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/IBM/sarama"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
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
	inner      *wkafka.Publisher
	closed     bool
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
func (p *Publisher) Publish(topic string, msgs ...*message.Message) error {
	inner, err := p.connect()
	if err != nil {
		return fmt.Errorf("connecting to kafka: %w", err)
	}
	return inner.Publish(topic, msgs...)
}

// Close waits for the sends under way, which is bounded by the client's time-outs.
func (p *Publisher) Close() error {
	p.mu.Lock()
	inner := p.inner
	p.inner, p.closed = nil, true
	p.mu.Unlock()
	if inner == nil {
		return nil
	}
	return inner.Close()
}

// connect gives all callers that wait for a connection the answer of the same try. One after the other, they would wait
// for as many tries as there are callers.
func (p *Publisher) connect() (*wkafka.Publisher, error) {
	if inner, err := p.connected(); inner != nil || err != nil {
		return inner, err
	}
	inner, err, _ := p.connecting.Do("", func() (any, error) {
		if inner, err := p.connected(); inner != nil || err != nil {
			return inner, err
		}
		inner, err := wkafka.NewPublisher(wkafka.PublisherConfig{
			Brokers:               BrokerList(p.config.Brokers),
			Marshaler:             marshaler{},
			OverwriteSaramaConfig: publisherConfig(p.config.ClientID),
		}, Logger(p.config.Log))
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.closed {
			return nil, errors.Join(ErrClosed, inner.Close())
		}
		p.inner = inner
		return inner, nil
	})
	if err != nil {
		return nil, err
	}
	return inner.(*wkafka.Publisher), nil
}

func (p *Publisher) connected() (*wkafka.Publisher, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	return p.inner, nil
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
	for i, h := range r.Headers {
		out.Headers[i] = sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value}
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
