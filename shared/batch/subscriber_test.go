package batch_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/batch"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	within  = 90 * time.Second
	session = 15 * time.Second // nothing here dies, so a member that seems dead is one on a slow machine
)

func join(t testing.TB, brokers string, window int) (*batch.Subscriber, <-chan *message.Message) {
	t.Helper()
	s, err := batch.NewSubscriber(kafka.SubscriberConfig{Brokers: brokers, ClientID: "test", Group: "g",
		Session: session, Log: slog.New(testkit.Logs())}, window)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	messages, err := s.Subscribe(t.Context(), "letters")
	require.NoError(t, err)
	return s, messages
}

// take receives n messages; none of them is acked.
func take(t testing.TB, messages <-chan *message.Message, n int) []*message.Message {
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

func committed(t testing.TB, b *testkit.Broker, partition int32) int64 {
	t.Helper()
	return testkit.CommittedOffset(t, b.Brokers(), "g", "letters", partition)
}

func requireCommitted(t testing.TB, b *testkit.Broker, partition int32, want int64) {
	t.Helper()
	testkit.Eventually(t, within, func() error {
		if got := committed(t, b, partition); got != want {
			return fmt.Errorf("partition %d is committed at %d, not %d", partition, got, want)
		}
		return nil
	})
}

func TestAWholeWindowIsOutAtOnceInOrderAndNotOneMore(t *testing.T) {
	t.Parallel()
	b := testkit.Kafka(t, "letters:1")
	send(t, b.Brokers(), "letters", 0, 20)
	_, messages := join(t, b.Brokers(), 8)
	out := take(t, messages, 8)
	for i, m := range out {
		require.Equal(t, int64(i), record(t, m).Offset)
	}
	select {
	case m := <-messages:
		t.Fatalf("offset %d came although 8 are unacked", record(t, m).Offset)
	case <-time.After(300 * time.Millisecond):
	}
	out[0].Ack()
	require.Equal(t, int64(8), record(t, take(t, messages, 1)[0]).Offset)
}

func TestOnlyTheAckedPrefixIsCommittedAndARestartSkipsNothing(t *testing.T) {
	t.Parallel()
	b := testkit.Kafka(t, "letters:1")
	send(t, b.Brokers(), "letters", 0, 10)
	s, messages := join(t, b.Brokers(), 10)
	out := take(t, messages, 10)
	for _, i := range []int{9, 1, 0, 5, 2, 4} { // 3 is missing
		out[i].Ack()
	}
	requireCommitted(t, b, 0, 3)
	require.NoError(t, s.Close())
	require.Equal(t, int64(3), committed(t, b, 0), "after the member's end")
	out[3].Ack() // too late

	_, messages = join(t, b.Brokers(), 10)
	for i, m := range take(t, messages, 7) {
		require.Equal(t, int64(3+i), record(t, m).Offset)
		m.Ack()
	}
	requireCommitted(t, b, 0, 10)
}

func TestANackedMessageComesAgainAndHoldsTheOffsetBack(t *testing.T) {
	t.Parallel()
	b := testkit.Kafka(t, "letters:1")
	send(t, b.Brokers(), "letters", 0, 4)
	s, messages := join(t, b.Brokers(), 4)
	out := take(t, messages, 4)
	out[0].Ack()
	out[2].Ack()
	out[3].Ack()
	out[1].Nack()
	again := take(t, messages, 1)[0]
	require.Equal(t, int64(1), record(t, again).Offset)
	requireCommitted(t, b, 0, 1)
	again.Ack()
	requireCommitted(t, b, 0, 4)
	require.NoError(t, s.Close())
}

func TestAtARebalanceTheMemberLetsGoAtOnceAndTheNextOwnerGetsWhatWasNotAcked(t *testing.T) {
	t.Parallel()
	b := testkit.Kafka(t, "letters:2")
	send(t, b.Brokers(), "letters", 0, 6)
	send(t, b.Brokers(), "letters", 1, 6)
	_, first := join(t, b.Brokers(), 6)
	out := take(t, first, 12)
	for _, m := range out {
		if o := record(t, m).Offset; o < 2 || o == 4 {
			m.Ack()
		}
	}
	// Nobody acks the rest. The second member must get its partition all the same.
	_, second := join(t, b.Brokers(), 6)
	theirs := take(t, second, 4)
	for i, m := range theirs {
		require.Equal(t, int64(2+i), record(t, m).Offset)
		require.Equal(t, record(t, theirs[0]).Partition, record(t, m).Partition)
	}
	for _, m := range out {
		if o := record(t, m).Offset; o >= 2 {
			require.Error(t, m.Context().Err(), "the context of a message of the lost session")
			m.Ack() // of no account
		}
	}
	mine := take(t, first, 4)
	require.NotEqual(t, record(t, theirs[0]).Partition, record(t, mine[0]).Partition)
	require.Equal(t, int64(2), committed(t, b, 0))
	require.Equal(t, int64(2), committed(t, b, 1))
	for _, m := range append(theirs, mine...) {
		m.Ack()
	}
	requireCommitted(t, b, 0, 6)
	requireCommitted(t, b, 1, 6)
}

func TestABrokerThatGoesAndComesCostsNoMessage(t *testing.T) {
	t.Parallel()
	b := testkit.Kafka(t, "letters:1")
	send(t, b.Brokers(), "letters", 0, 10)
	_, messages := join(t, b.Brokers(), 5)
	for _, m := range take(t, messages, 3) {
		m.Ack()
	}
	b.Kill()
	b.Restart()
	seen := map[int64]bool{0: true, 1: true, 2: true}
	deadline := time.After(within)
	for len(seen) < 10 {
		select {
		case m := <-messages:
			seen[record(t, m).Offset] = true
			m.Ack()
		case <-deadline:
			t.Fatalf("only %d of 10 came", len(seen))
		}
	}
	requireCommitted(t, b, 0, 10)
}
