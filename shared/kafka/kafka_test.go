package kafka

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/settings"
	"example.com/paycast/shared/testkit"
)

func publisher(t *testing.T, brokers string) *Publisher {
	t.Helper()
	p, err := NewPublisher(PublisherConfig{Brokers: brokers, ClientID: "test", Log: slog.New(testkit.Logs())})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func subscribe(t *testing.T, brokers, group, topic string) <-chan *message.Message {
	t.Helper()
	s, err := NewSubscriber(SubscriberConfig{Brokers: brokers, ClientID: "test", Group: group, Log: slog.New(testkit.Logs())})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	out, err := s.Subscribe(t.Context(), topic)
	require.NoError(t, err)
	return out
}

func next(t *testing.T, in <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case m := <-in:
		require.NotNil(t, m)
		return m
	case <-time.After(2 * time.Minute):
		t.Fatal("no message came")
		return nil
	}
}

func testEvent() event.Event {
	return event.Event{
		ID: event.NewID(event.OrderCreated, "O-1", "c"), Type: event.OrderCreated, Version: 1, Source: "/test",
		AggregateType: event.AggregateOrder, AggregateID: "O-1", AggregateVersion: 1, Time: time.Now().UTC().Truncate(time.Microsecond),
		Payload: []byte(`{"order_no" : "O-1"}`),
	}
}

func TestPublishedRecordHasTheEventsHeadersAndNothingElse(t *testing.T) {
	t.Parallel()
	b := testkit.Kafka(t, event.Topic)
	e := testEvent()
	m := Message(event.Record{Key: []byte(e.AggregateID), Value: e.Payload, Headers: e.Headers()})
	ctx, place := Track(t.Context())
	m.SetContext(ctx)

	require.NoError(t, publisher(t, b.Brokers()).Publish(event.Topic, m))

	got := testkit.ReadTopic(t, b.Brokers(), event.Topic)
	require.Len(t, got, 1)
	require.Equal(t, e.Headers(), got[0].Headers)
	require.Equal(t, "O-1", string(got[0].Key))
	require.Equal(t, string(e.Payload), string(got[0].Value))
	require.Equal(t, got[0].Partition, place.Partition())
	require.Equal(t, got[0].Offset, place.Offset())
}

func TestSubscriberDeliversWhateverBytesThereAre(t *testing.T) {
	t.Parallel()
	b := testkit.Kafka(t, "odd:1")
	odd := []event.Record{
		{Key: nil, Value: nil},
		{Key: []byte{0xff}, Value: []byte{}, Headers: []event.Header{{Key: "ce_id", Value: nil}, {Key: "ce_id", Value: []byte("2")}}},
		{Key: []byte("k"), Value: []byte{0, 1, 2}},
	}
	testkit.Produce(t, b.Brokers(), "odd", odd...) // before the group's first start
	in := subscribe(t, b.Brokers(), "g", "odd")
	for offset, want := range odd {
		m := next(t, in)
		got, err := Record(m)
		require.NoError(t, err)
		m.Ack()
		require.Equal(t, int64(offset), got.Offset)
		require.Equal(t, want.Value, got.Value)
		require.Equal(t, want.Key, got.Key)
		require.Equal(t, len(want.Headers), len(got.Headers))
		for i := range want.Headers {
			require.Equal(t, want.Headers[i], got.Headers[i])
		}
		require.WithinDuration(t, time.Now(), got.Time, time.Minute)
	}
}

func TestOffsetsTellWhatAGroupHasAcked(t *testing.T) {
	t.Parallel()
	b := testkit.Kafka(t, "letters:2")
	committed, err := CommittedOffsets(t.Context(), b.Brokers(), "g", "letters")
	require.NoError(t, err)
	require.Equal(t, map[int32]int64{0: -1, 1: -1}, committed)
	testkit.Produce(t, b.Brokers(), "letters", event.Record{Key: []byte("a"), Value: []byte("1")}, event.Record{Key: []byte("a"), Value: []byte("2")})
	high, err := HighWatermarks(t.Context(), b.Brokers(), "letters")
	require.NoError(t, err)
	require.Equal(t, int64(2), high[0]+high[1])
	lag, err := Lag(t.Context(), b.Brokers(), "g", "letters")
	require.NoError(t, err)
	require.Equal(t, int64(2), lag[0]+lag[1])

	in := subscribe(t, b.Brokers(), "g", "letters")
	next(t, in).Ack()
	next(t, in) // never acked

	require.EventuallyWithT(t, func(c *assert.CollectT) {
		lag, err := Lag(t.Context(), b.Brokers(), "g", "letters")
		require.NoError(c, err)
		require.Equal(c, int64(1), lag[0]+lag[1])
	}, 2*time.Minute, 50*time.Millisecond)
}

func TestTopicsAreCreatedOnceAndNeverByUsingThem(t *testing.T) {
	t.Parallel()
	b := testkit.Kafka(t, "narrow:3")
	done := make(chan error, 3)
	for range cap(done) {
		go func() { done <- EnsureTopics(t.Context(), b.Brokers(), event.Topic, event.RedeliveryTopic("points")) }()
	}
	for range cap(done) {
		require.NoError(t, <-done)
	}
	high, err := HighWatermarks(t.Context(), b.Brokers(), event.Topic)
	require.NoError(t, err)
	require.Len(t, high, event.Partitions)

	made, err := Seen(t.Context(), b.Brokers(), event.Topic)
	require.NoError(t, err)
	require.Equal(t, []settings.Topic{{Topic: event.Topic, Partitions: event.Partitions, Cleanup: "delete", Retention: 7 * 24 * time.Hour}}, made.Topics)

	require.ErrorIs(t, EnsureTopics(t.Context(), b.Brokers(), "narrow"), errPartitions)

	err = publisher(t, b.Brokers()).Publish("mistyped", Message(event.Record{Key: []byte("k"), Value: []byte("v")}))
	require.ErrorIs(t, err, sarama.ErrUnknownTopicOrPartition)
	_, err = HighWatermarks(t.Context(), b.Brokers(), "mistyped")
	require.Error(t, err)
}

func TestPublisherStartsBeforeKafkaAndSurvivesItsRestart(t *testing.T) {
	t.Parallel()
	b := testkit.Kafka(t, "letters:1")
	b.Kill()
	p := publisher(t, b.Brokers())
	letter := func() *message.Message { return Message(event.Record{Key: []byte("k"), Value: []byte("v")}) }
	require.ErrorIs(t, p.Publish("letters", letter()), sarama.ErrOutOfBrokers)
	b.Restart()
	require.NoError(t, p.Publish("letters", letter()))
	b.Restart()
	require.Eventually(t, func() bool { return p.Publish("letters", letter()) == nil }, 2*time.Minute, 50*time.Millisecond)
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.Publish("letters", letter()), ErrClosed)
}

func TestLoggerDropsContentsAndDemotesWhatIsReportedElsewhere(t *testing.T) {
	t.Parallel()
	logs := testkit.Logs()
	l := Logger(slog.New(logs)).With(watermill.LogFields{"metadata": "+4512345678"})
	l.Error("could not unwrap", errors.New("boom"), watermill.LogFields{"payload": []byte("+4512345678"), "not_sent_message": "+4512345678", "uuid": "E1"})
	l.Error("handler failed", errors.Join(ErrReported), nil)
	require.NotContains(t, logs.Text(), "4512345678")
	require.Equal(t, "E1", logs.Find("could not unwrap")[0]["uuid"])
	require.Equal(t, "DEBUG", logs.Find("handler failed")[0]["level"])
}
