// Package kafkatest is what this repository relies on in a Kafka broker, as a suite that runs against the embedded one
// and against Apache Kafka alike. Where the two differ, the embedded one is wrong.
package kafkatest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/testkit"
)

// Server is the broker under test. It has one address, the same over restarts, and makes no topics by itself.
type Server interface {
	Brokers() string
	Kill()    // as kill -9 does
	Stop()    // in order
	Restart() // starts it again on its data, and returns when it answers; one that runs is killed first
	Pause()   // stands still, with its connections, until Resume
	Resume()
}

// patience bounds what a broker may need to come back, or a group to settle.
const patience = 3 * time.Minute

// Contract makes topics and groups of its own, and leaves the broker running.
func Contract(t *testing.T, s Server) {
	b := broker{s}
	t.Run("topics are made once by any number of starters, as we configure them", func(t *testing.T) { contractTopics(t, b) })
	t.Run("a topic with another number of partitions is refused", func(t *testing.T) { contractPartitionCount(t, b) })
	t.Run("a record arrives as it was published, byte for byte", func(t *testing.T) { contractBytes(t, b) })
	t.Run("the key alone chooses the partition", func(t *testing.T) { contractPartition(t, b) })
	t.Run("records of one key stay in order", func(t *testing.T) { contractOrder(t, b) })
	t.Run("an accepted record stands where the answer says", func(t *testing.T) { contractPlace(t, b) })
	t.Run("what is too large is rejected and not stored", func(t *testing.T) { contractTooLarge(t, b) })
	t.Run("a topic that does not exist refuses, and is not made", func(t *testing.T) { contractNoTopic(t, b) })
	t.Run("a group goes on after what it acked", func(t *testing.T) { contractOffsets(t, b) })
	t.Run("an offset that is gone is not jumped over", func(t *testing.T) { contractLostOffset(t, b) })
	t.Run("two members share the partitions, and one takes over all", func(t *testing.T) { contractRebalance(t, b) })
	t.Run("a member that dies while it waits to join keeps no partition", func(t *testing.T) { contractDeadMember(t, b) })
	t.Run("records and offsets survive kill -9", func(t *testing.T) { contractRestart(t, b) })
	t.Run("a killed broker is unreachable, and nothing is stored", func(t *testing.T) { contractKilled(t, b) })
	t.Run("a broker that stops in order loses and doubles nothing", func(t *testing.T) { contractUnderLoad(t, b, s.Stop) })
	t.Run("a broker that is killed loses and doubles nothing", func(t *testing.T) { contractUnderLoad(t, b, s.Kill) })
	t.Run("a paused broker answers later, and stores once", func(t *testing.T) { contractPaused(t, b) })
}

type broker struct{ Server }

// topic makes a topic of the subtest's own and returns when it has leaders.
func (b broker) topic(t *testing.T, partitions int32, config map[string]string) string {
	t.Helper()
	name := "contract-" + uuid.NewString()
	b.admin(t, func(ctx context.Context, admin *kadm.Client) error {
		values := map[string]*string{}
		for k, v := range config {
			values[k] = &v
		}
		made, err := admin.CreateTopic(ctx, partitions, 1, values, name)
		if err != nil {
			return err
		}
		return made.Err
	})
	testkit.Eventually(t, patience, func() error { // a creation is answered before the leaders are there
		high, err := kafka.HighWatermarks(t.Context(), b.Brokers(), name)
		if err == nil && len(high) != int(partitions) {
			err = fmt.Errorf("%d of %d partitions", len(high), partitions)
		}
		return err
	})
	return name
}

// admin is another client family than the one under test.
func (b broker) admin(t *testing.T, do func(context.Context, *kadm.Client) error) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Brokers()))
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, do(ctx, kadm.NewClient(client)))
}

func (b broker) publisher(t *testing.T) *kafka.Publisher {
	t.Helper()
	p, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: b.Brokers(), ClientID: "contract", Log: slog.New(testkit.Logs())})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() }) // a subtest that is over does not care for sends that it has given up
	return p
}

// member is one member of a group. Leave may be called again.
type member struct {
	messages <-chan *message.Message
	Leave    func()
}

func (b broker) join(t *testing.T, group, topic string) member {
	t.Helper()
	s, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: b.Brokers(), ClientID: "contract", Group: group, Log: slog.New(testkit.Logs()),
		Session: 15 * time.Second, // no member dies here, so one that seems dead is one on a slow machine
	})
	require.NoError(t, err)
	m := member{Leave: sync.OnceFunc(func() { require.NoError(t, s.Close()) })}
	t.Cleanup(m.Leave)
	testkit.Eventually(t, patience, func() error {
		m.messages, err = s.Subscribe(context.WithoutCancel(t.Context()), topic)
		return err
	})
	return m
}

// next is the next record, which the caller acks.
func (m member) next(t *testing.T) (event.Record, func()) {
	t.Helper()
	select {
	case msg, open := <-m.messages:
		require.True(t, open, "the subscription ended")
		r, err := kafka.Record(msg)
		require.NoError(t, err)
		return r, func() { msg.Ack() }
	case <-time.After(patience):
		require.FailNow(t, "no record came")
		return event.Record{}, nil
	}
}

func letter(key, value string) *message.Message {
	return kafka.Message(event.Record{Key: []byte(key), Value: []byte(value)})
}

// stored counts the topic's values.
func (b broker) stored(t *testing.T, topic string) map[string]int {
	t.Helper()
	values := map[string]int{}
	for _, r := range testkit.ReadTopic(t, b.Brokers(), topic) {
		values[string(r.Value)]++
	}
	return values
}
