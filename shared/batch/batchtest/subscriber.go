// Package batchtest is what a subscriber with a window promises, as a suite that runs on the embedded broker and on Apache
// Kafka alike.
package batchtest

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/batch"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/testkit"
)

// Broker is what the suite runs on. It has one address, the same over restarts.
type Broker interface {
	Brokers() string
	Kill()
	Restart() // on its data; returns when it answers
}

const (
	within  = 90 * time.Second
	session = 15 * time.Second // nothing here dies, so a member that seems dead is one on a slow machine
)

// Subscriber makes topics and groups of its own, and leaves the broker running.
func Subscriber(t *testing.T, b Broker) {
	t.Run("a whole window is out at once, in order, and not one more", func(t *testing.T) { wholeWindow(t, newTopic(t, b, 1)) })
	t.Run("only the acked prefix is committed, and a restart skips nothing", func(t *testing.T) { ackedPrefix(t, newTopic(t, b, 1)) })
	t.Run("a nacked message comes again and holds the offset back", func(t *testing.T) { nacked(t, newTopic(t, b, 1)) })
	t.Run("at a rebalance a member lets go at once and the next owner gets what was not acked", func(t *testing.T) { rebalance(t, newTopic(t, b, 2)) })
	t.Run("a broker that goes and comes costs no message", func(t *testing.T) { brokerGone(t, newTopic(t, b, 1)) })
}

// topic is a topic of one case. Its group has the same name.
type topic struct {
	Broker
	name string
}

func newTopic(t *testing.T, b Broker, partitions int32) topic {
	t.Helper()
	admin, err := sarama.NewClusterAdmin([]string{b.Brokers()}, settings())
	require.NoError(t, err)
	defer func() { require.NoError(t, admin.Close()) }()
	name := "letters-" + uuid.NewString()
	require.NoError(t, admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false))
	testkit.Eventually(t, within, func() error { // a creation is answered before the leaders are there
		high, err := kafka.HighWatermarks(t.Context(), b.Brokers(), name)
		if err == nil && len(high) != int(partitions) {
			err = fmt.Errorf("%d of %d partitions", len(high), partitions)
		}
		return err
	})
	return topic{b, name}
}

func settings() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	return c
}

// send puts n records on one partition.
func (b topic) send(t *testing.T, partition int32, n int) {
	t.Helper()
	p, err := sarama.NewSyncProducer([]string{b.Brokers()}, settings())
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	var all []*sarama.ProducerMessage
	for range n {
		all = append(all, &sarama.ProducerMessage{Topic: b.name, Partition: partition, Value: sarama.StringEncoder("x")})
	}
	require.NoError(t, p.SendMessages(all))
}

func (b topic) join(t *testing.T, window int) (*batch.Subscriber, <-chan *message.Message) {
	t.Helper()
	s, err := batch.NewSubscriber(kafka.SubscriberConfig{Brokers: b.Brokers(), ClientID: "test", Group: b.name,
		Session: session, Log: slog.New(testkit.Logs())}, window)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	messages, err := s.Subscribe(t.Context(), b.name)
	require.NoError(t, err)
	return s, messages
}

func (b topic) committed(t *testing.T, partition int32) int64 {
	t.Helper()
	return testkit.CommittedOffset(t, b.Brokers(), b.name, b.name, partition)
}

func (b topic) requireCommitted(t *testing.T, partition int32, want int64) {
	t.Helper()
	testkit.Eventually(t, within, func() error {
		if got := b.committed(t, partition); got != want {
			return fmt.Errorf("partition %d is committed at %d, not %d", partition, got, want)
		}
		return nil
	})
}

// take receives n messages; none of them is acked.
func take(t *testing.T, messages <-chan *message.Message, n int) []*message.Message {
	t.Helper()
	var out []*message.Message
	timeout := time.After(within)
	for len(out) < n {
		select {
		case m := <-messages:
			require.NotNil(t, m)
			out = append(out, m)
		case <-timeout:
			t.Fatalf("%d of %d messages came", len(out), n)
		}
	}
	return out
}

func record(t *testing.T, m *message.Message) event.Record {
	t.Helper()
	r, err := kafka.Record(m)
	require.NoError(t, err)
	return r
}
