package kafkatest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/outbox"
	"example.com/paycast/shared/testkit"
)

// The classes of answers, as the relay names them.
const (
	accepted    = "accepted"
	rejected    = "rejected"
	unreachable = "unreachable"
	unknown     = "unknown"
	refused     = "refused"
)

func contractPlace(t *testing.T, b broker) {
	p, topic := b.publisher(t), b.topic(t, 3, nil)
	places := map[string]*kafka.Place{}
	for i := range 20 {
		m := letter(fmt.Sprint("k", i), fmt.Sprint("v", i))
		ctx, place := kafka.Track(t.Context())
		m.SetContext(ctx)
		require.NoError(t, p.Publish(topic, m))
		places[fmt.Sprint("v", i)] = place
	}
	records := testkit.ReadTopic(t, b.Brokers(), topic)
	require.Len(t, records, 20)
	for _, r := range records {
		place := places[string(r.Value)]
		require.Equal(t, r.Partition, place.Partition())
		require.Equal(t, r.Offset, place.Offset())
	}
}

func contractTooLarge(t *testing.T, b broker) {
	p, topic := b.publisher(t), b.topic(t, 1, map[string]string{"max.message.bytes": "2000"})
	err := p.Publish(topic, letter("k", strings.Repeat("x", 5000)))
	require.ErrorIs(t, err, sarama.ErrMessageSizeTooLarge)
	require.Equal(t, rejected, outbox.Classify(err))
	err = p.Publish(topic, letter("k", strings.Repeat("x", kafka.MaxMessageBytes)))
	require.ErrorAs(t, err, new(sarama.ConfigurationError), "above the client's own limit nothing is sent")
	require.Equal(t, rejected, outbox.Classify(err))

	require.NoError(t, p.Publish(topic, letter("k", "fits")), "the next one of the key is not held up")
	require.Equal(t, map[string]int{"fits": 1}, b.stored(t, topic))
	large := b.topic(t, 1, nil)
	require.NoError(t, p.Publish(large, letter("k", strings.Repeat("x", kafka.MaxMessageBytes-100))),
		"what the client lets pass, the broker takes")
}

func contractNoTopic(t *testing.T, b broker) {
	p, topic := b.publisher(t), b.topic(t, 1, nil)
	missing := "contract-" + uuid.NewString()
	for range 2 {
		err := p.Publish(missing, letter("k", "v"))
		require.ErrorIs(t, err, sarama.ErrUnknownTopicOrPartition)
		require.Equal(t, refused, outbox.Classify(err))
	}
	err := p.Publish("not a topic's name", letter("k", "v"))
	require.ErrorIs(t, err, sarama.ErrInvalidTopic)
	require.Equal(t, refused, outbox.Classify(err))
	require.NoError(t, p.Publish(topic, letter("k", "v")), "other topics are served")
	_, err = kafka.HighWatermarks(t.Context(), b.Brokers(), missing)
	require.ErrorIs(t, err, sarama.ErrUnknownTopicOrPartition)
}

func contractKilled(t *testing.T, b broker) {
	p, topic := b.publisher(t), b.topic(t, 1, nil)
	require.NoError(t, p.Publish(topic, letter("k", "before")))
	b.Kill()
	classes := map[string]string{}
	for i := range 5 {
		value := fmt.Sprint("down-", i)
		err := p.Publish(topic, letter("k", value))
		classes[value] = outbox.Classify(err)
		if i > 0 { // on the open connection bytes may have left
			require.ErrorIs(t, err, sarama.ErrOutOfBrokers)
		}
	}
	b.Restart()
	testkit.Eventually(t, patience, func() error { return p.Publish(topic, letter("k", "after")) })
	stored := b.stored(t, topic)
	require.Equal(t, 1, stored["before"])
	require.GreaterOrEqual(t, stored["after"], 1)
	for value, class := range classes {
		require.Contains(t, []string{unreachable, unknown}, class, value)
		require.Zero(t, stored[value], value)
	}
}

// contractUnderLoad ends the broker in the middle of sends and starts it again.
func contractUnderLoad(t *testing.T, b broker, end func()) {
	const senders, perSender = 4, 150
	p, topic := b.publisher(t), b.topic(t, 4, nil)
	var mu sync.Mutex
	classes := map[string]string{}
	half := make(chan struct{}, senders)
	var sending sync.WaitGroup
	for s := range senders {
		sending.Go(func() {
			for i := range perSender {
				if i == perSender/2 {
					half <- struct{}{}
				}
				value := fmt.Sprintf("%d-%d", s, i)
				class := outbox.Classify(p.Publish(topic, letter(fmt.Sprint("k", s), value)))
				mu.Lock()
				classes[value] = class
				mu.Unlock()
			}
		})
	}
	for range 2 {
		<-half
	}
	end()
	b.Restart()
	sending.Wait()
	testkit.Eventually(t, patience, func() error { return p.Publish(topic, letter("k", "after")) })
	stored, counts := b.stored(t, topic), map[string]int{}
	for value, class := range classes {
		counts[class]++
		switch class {
		case accepted:
			assert.Equal(t, 1, stored[value], "%s was accepted", value)
		case unreachable, unknown: // the last error can hide an earlier try that was stored
			assert.LessOrEqual(t, stored[value], 1, "%s was %s", value, class)
		default:
			assert.Fail(t, "a broker that goes and comes", "answers %s to %s", class, value)
		}
	}
	require.GreaterOrEqual(t, counts[accepted], perSender, "what two senders had sent before the end: %v", counts)
}

func contractPaused(t *testing.T, b broker) {
	// The second pause outlasts the client's read time-out, so that it sends again, and the broker has to know it.
	for _, pause := range []time.Duration{time.Second, 6 * time.Second} {
		p, topic := b.publisher(t), b.topic(t, 1, nil)
		require.NoError(t, p.Publish(topic, letter("k", "before")))
		b.Pause()
		answer := make(chan error, 1)
		go func() { answer <- p.Publish(topic, letter("k", "paused")) }()
		select {
		case err := <-answer:
			b.Resume()
			require.FailNow(t, "an answer came from a broker that stands still", "%v", err)
		case <-time.After(pause):
		}
		b.Resume()
		select {
		case err := <-answer:
			require.NoError(t, err, "after %v", pause)
		case <-time.After(patience):
			require.FailNow(t, "no answer came")
		}
		require.Equal(t, map[string]int{"before": 1, "paused": 1}, b.stored(t, topic), "after %v", pause)
	}
}

func contractPartition(t *testing.T, b broker) {
	topic := "contract-" + uuid.NewString()
	require.NoError(t, kafka.EnsureTopics(t.Context(), b.Brokers(), topic))
	want := map[string]int32{"O-1": 4, "O-2": 1, "O-1001": 1} // FNV-1a; other numbers would move live orders
	p := b.publisher(t)
	for key := range want {
		for range 3 {
			require.NoError(t, p.Publish(topic, letter(key, "ours")))
		}
		testkit.Produce(t, b.Brokers(), topic, event.Record{Key: []byte(key), Value: []byte("theirs")}) // another client family
	}
	records := testkit.ReadTopic(t, b.Brokers(), topic)
	require.Len(t, records, 12)
	for _, r := range records {
		require.Equal(t, want[string(r.Key)], r.Partition, "%s %s", r.Key, r.Value)
	}
}
