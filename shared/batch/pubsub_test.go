package batch_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/batch"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/testkit"
)

// At a window of 1 the subscriber gives the next message after the ack of the one before, as Watermill's own suite
// demands of a subscriber that keeps the order.
func TestAtAWindowOfOneItIsASubscriberAsWatermillUnderstandsIt(t *testing.T) {
	t.Parallel()
	b := testkit.Kafka(t)
	inGroup := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		p := &plainPublisher{brokers: b.Brokers(), SyncProducer: producer(t, b.Brokers())}
		inner, err := batch.NewSubscriber(kafka.SubscriberConfig{Brokers: b.Brokers(), ClientID: "test", Group: group,
			Session: session, Log: slog.New(testkit.Logs())}, 1)
		require.NoError(t, err)
		s := subscriber{inner, p, &sync.WaitGroup{}}
		t.Cleanup(func() { // the suite does not close all that it opens
			require.NoError(t, s.Close())
			require.NoError(t, p.Close())
		})
		return p, s
	}
	tests.TestPubSub(t, tests.Features{ConsumerGroups: true, GuaranteedOrder: true, Persistent: true, ForceShort: true},
		func(t *testing.T) (message.Publisher, message.Subscriber) { return inGroup(t, "test") }, inGroup)
}

// subscriber gives the suite its metadata back. The suite makes topics by using them.
type subscriber struct {
	message.Subscriber
	p       *plainPublisher
	running *sync.WaitGroup
}

func (s subscriber) Close() error {
	defer s.running.Wait()
	return s.Subscriber.Close()
}

func (s subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	s.running.Go(func() {
		defer close(out)
		for m := range in {
			unwrap(m)
			select {
			case out <- m:
			case <-m.Context().Done(): // Watermill's decorator would wait for ever for somebody who reads no more
			}
		}
	})
	return out, nil
}

func (s subscriber) SubscribeInitialize(topic string) error { return s.p.make(topic) }

// plainPublisher publishes any message; its metadata become headers.
type plainPublisher struct {
	brokers string
	sarama.SyncProducer
	closing sync.Once // the suite closes from several sides
}

func (p *plainPublisher) Close() (err error) {
	p.closing.Do(func() { err = p.SyncProducer.Close() })
	return err
}

const uuidHeader = "uuid"

func (p *plainPublisher) Publish(topic string, msgs ...*message.Message) error {
	if err := p.make(topic); err != nil {
		return err
	}
	for _, m := range msgs {
		out := &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(m.Payload),
			Headers: []sarama.RecordHeader{{Key: []byte(uuidHeader), Value: []byte(m.UUID)}}}
		for k, v := range m.Metadata {
			out.Headers = append(out.Headers, sarama.RecordHeader{Key: []byte(k), Value: []byte(v)})
		}
		if _, _, err := p.SendMessage(out); err != nil {
			return err
		}
	}
	return nil
}

func (p *plainPublisher) make(topic string) error {
	admin, err := sarama.NewClusterAdmin([]string{p.brokers}, settings())
	if err != nil {
		return err
	}
	defer func() { _ = admin.Close() }()
	all, err := admin.DescribeTopics([]string{topic})
	if err != nil || all[0].Err == sarama.ErrNoError {
		return err
	}
	return admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
}

func unwrap(m *message.Message) {
	r, err := kafka.Record(m)
	if err != nil {
		return // the suite misses its metadata then
	}
	m.Metadata = message.Metadata{}
	for _, h := range r.Headers {
		if h.Key == uuidHeader {
			m.UUID = string(h.Value)
			continue
		}
		m.Metadata.Set(h.Key, string(h.Value))
	}
}

func settings() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.Producer.Return.Successes = true
	return c
}

func producer(t testing.TB, brokers string) sarama.SyncProducer {
	p, err := sarama.NewSyncProducer([]string{brokers}, settings())
	require.NoError(t, err)
	return p
}
