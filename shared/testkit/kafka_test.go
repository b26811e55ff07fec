package testkit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/paycast/shared/event"
)

func TestABrokerKeepsRecordsOverARestart(t *testing.T) {
	t.Parallel()
	b := Kafka(t, "letters:3", "orders")
	sent := []event.Record{
		{Key: []byte("a"), Value: []byte("1"), Headers: []event.Header{{Key: "h", Value: []byte("x")}, {Key: "h", Value: nil}}},
		{Key: []byte("b"), Value: nil},
		{Key: []byte("a"), Value: []byte("2")},
	}
	Produce(t, b.Brokers(), "letters", sent...)

	b.Restart()

	got := ReadTopic(t, b.Brokers(), "letters")
	require.Len(t, got, 3)
	byKey := map[string][]event.Record{}
	for _, r := range got {
		byKey[string(r.Key)] = append(byKey[string(r.Key)], r)
	}
	require.Equal(t, "1", string(byKey["a"][0].Value))
	require.Equal(t, sent[0].Headers, byKey["a"][0].Headers)
	require.Equal(t, "2", string(byKey["a"][1].Value))
	require.Nil(t, byKey["b"][0].Value, "a tombstone")
	require.Empty(t, ReadTopic(t, b.Brokers(), "orders"))
	require.Len(t, b.Cluster().PartitionInfos("orders"), event.Partitions)
	require.Len(t, b.Cluster().PartitionInfos("letters"), 3)
}

func TestCommittedOffsetIsMinusOneUntilTheGroupCommits(t *testing.T) {
	t.Parallel()
	b := Kafka(t, "letters:3")
	require.EqualValues(t, -1, CommittedOffset(t, b.Brokers(), "readers", "letters", 2))
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "letters", Partition: 2, At: 5})
	require.NoError(t, kadm.NewClient(open(t, b.Brokers())).CommitAllOffsets(t.Context(), "readers", offsets))
	b.Restart()
	require.EqualValues(t, 5, CommittedOffset(t, b.Brokers(), "readers", "letters", 2))
	require.EqualValues(t, -1, CommittedOffset(t, b.Brokers(), "readers", "letters", 1))
}

func open(t *testing.T, brokers string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client := newClient(t, brokers, opts...)
	t.Cleanup(client.Close)
	return client
}

// send produces one record without any retry and returns what the broker answered.
func send(t *testing.T, b *Broker, within time.Duration) error {
	t.Helper()
	client := open(t, b.Brokers(), kgo.DisableIdempotentWrite(), kgo.RecordRetries(0), kgo.ProduceRequestTimeout(time.Second))
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return client.ProduceSync(ctx, &kgo.Record{Topic: "letters", Value: []byte("x")}).FirstErr()
}

// soon is much longer than anything here takes on a machine that has the time.
const soon = time.Minute

func TestFailedProducesAreNotStoredAndTheNextOneIs(t *testing.T) {
	t.Parallel()
	b := Kafka(t, "letters:1")
	b.FailProduce("letters", 1, kerr.NotEnoughReplicas)
	require.Error(t, send(t, b, soon))
	require.Empty(t, ReadTopic(t, b.Brokers(), "letters"))
	require.NoError(t, send(t, b, soon))

	remove := b.FailProduce("letters", -1, kerr.NotEnoughReplicasAfterAppend)
	require.Error(t, send(t, b, soon))
	require.Error(t, send(t, b, soon))
	remove()
	require.NoError(t, send(t, b, soon))
	require.Len(t, ReadTopic(t, b.Brokers(), "letters"), 4, "refused after the append is stored all the same")
}

func TestALostAnswerLeavesTheRecordStored(t *testing.T) {
	t.Parallel()
	b := Kafka(t, "letters:1")
	b.LoseProduceAnswers(1)
	require.Error(t, send(t, b, soon))
	require.Len(t, ReadTopic(t, b.Brokers(), "letters"), 1)
	require.NoError(t, send(t, b, soon))
	require.Len(t, ReadTopic(t, b.Brokers(), "letters"), 2)
}

func TestADelayedProduceIsAnsweredLateAndReadingIsNot(t *testing.T) {
	t.Parallel()
	b := Kafka(t, "letters:1")
	require.NoError(t, send(t, b, soon))
	const delay = 700 * time.Millisecond
	b.DelayProduce(delay)
	begin, answered := time.Now(), make(chan error, 1)
	go func() { answered <- send(t, b, soon) }()
	if read := ReadTopic(t, b.Brokers(), "letters"); time.Since(begin) < delay {
		require.Len(t, read, 1)
	} // or else this machine was too slow to tell
	require.NoError(t, <-answered)
	require.GreaterOrEqual(t, time.Since(begin), delay)
	require.Len(t, ReadTopic(t, b.Brokers(), "letters"), 2)
}

func TestAPausedBrokerAnswersNobodyAndThenReadsWhatItWasSent(t *testing.T) {
	t.Parallel()
	b := Kafka(t, "letters:1")
	client := open(t, b.Brokers(), kgo.DisableIdempotentWrite(), kgo.DefaultProduceTopic("letters"))
	require.NoError(t, client.ProduceSync(t.Context(), kgo.StringRecord("1")).FirstErr())
	b.Pause()
	answered := make(chan error, 1)
	client.Produce(t.Context(), kgo.StringRecord("2"), func(_ *kgo.Record, err error) { answered <- err })
	select {
	case err := <-answered:
		t.Fatalf("the paused broker answered: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	b.Resume()
	require.NoError(t, <-answered)
	require.Len(t, ReadTopic(t, b.Brokers(), "letters"), 2)
}

func TestAKilledBrokerRefusesConnectionsUntilItsRestart(t *testing.T) {
	t.Parallel()
	b := Kafka(t, "letters:1")
	b.Pause()
	b.Kill()
	require.Error(t, send(t, b, time.Second))
	require.Contains(t, failure(t, func(f testing.TB) {
		b := &Broker{t: f}
		b.Cluster()
	}), "killed")
	b.Restart()
	require.NoError(t, send(t, b, soon))
}

func TestTheGateFindsProduceRequestsHoweverTheBytesArrive(t *testing.T) {
	t.Parallel()
	frame := func(kind byte, number byte, body int) []byte {
		length := 8 + body
		return append([]byte{0, 0, byte(length >> 8), byte(length), 0, kind, 0, 9, 0, 0, 0, number}, make([]byte, body)...)
	}
	var stream []byte
	for number, kind := range []byte{3, 0, 1, 0, 0} {
		stream = append(stream, frame(kind, byte(number), 300*number)...)
	}
	for _, chunk := range []int{1, 3, 7, 100, len(stream)} {
		g := &gate{}
		g.lose.Store(2)
		c := &gatedConn{gate: g}
		for rest := stream; len(rest) > 0; {
			n := min(chunk, len(rest))
			c.watch(rest[:n])
			rest = rest[n:]
		}
		var lost []string
		c.lost.Range(func(number, _ any) bool { lost = append(lost, fmt.Sprint(number)); return true })
		require.ElementsMatch(t, []string{"1", "3"}, lost, "in chunks of %d", chunk)
	}
}

func TestEventuallyFailsWithTheLastErrorAndNotBefore(t *testing.T) {
	t.Parallel()
	tries := 0
	Eventually(t, soon, func() error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	require.Equal(t, 3, tries)
	message := failure(t, func(f testing.TB) {
		Eventually(f, 100*time.Millisecond, func() error { return errors.New("found 2 of 3") })
	})
	require.Equal(t, "not within 100ms: found 2 of 3", message)
}
