package kafkatest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/testkit"
)

func contractBytes(t *testing.T, b broker) {
	topic := b.topic(t, 1, nil)
	e := event.Event{
		ID: event.NewID(event.OrderCreated, "O-1", "c"), Type: event.OrderCreated, Version: 1, Source: "/contract",
		AggregateType: event.AggregateOrder, AggregateID: "O-1", AggregateVersion: 1, Time: time.Now().UTC(), Payload: []byte(`{"order_no" : "Ø-1"}`),
	}
	want := []event.Record{
		{Key: []byte("O-1"), Value: e.Payload, Headers: e.Headers()},
		{Key: []byte{0xff, 0}, Value: []byte{}, Headers: []event.Header{{Key: "twice", Value: nil}, {Key: "twice", Value: []byte{}}, {Key: "", Value: []byte("2")}}},
		{Key: []byte("k"), Value: nil},
		{Key: nil, Value: []byte{0, 1, 2}},
	}
	p := b.publisher(t)
	for _, r := range want[:3] {
		require.NoError(t, p.Publish(topic, kafka.Message(r)))
	}
	testkit.Produce(t, b.Brokers(), topic, want[3]) // a record without a key is never ours
	raw := testkit.ReadTopic(t, b.Brokers(), topic)
	require.Len(t, raw, len(want))
	m := b.join(t, topic, topic) // a new group, which starts at the oldest record
	for offset, w := range want {
		got, ack := m.next(t)
		ack()
		for _, r := range []event.Record{got, raw[offset]} {
			require.Equal(t, int64(offset), r.Offset)
			require.Equal(t, topic, r.Topic)
			require.Equal(t, w.Key, r.Key)
			require.Equal(t, w.Value, r.Value, "record %d", offset)
			require.Len(t, r.Headers, len(w.Headers))
			for i := range w.Headers {
				require.Equal(t, w.Headers[i], r.Headers[i])
			}
			require.WithinDuration(t, time.Now(), r.Time, time.Minute)
		}
	}
}

func contractOrder(t *testing.T, b broker) {
	const keys, each = 6, 30
	topic := b.topic(t, 3, nil)
	p := b.publisher(t)
	var publishing sync.WaitGroup
	for k := range keys {
		publishing.Go(func() {
			for i := range each {
				assert.NoError(t, p.Publish(topic, letter(fmt.Sprint("k", k), fmt.Sprint(i))))
			}
		})
	}
	m := b.join(t, topic, topic)
	next := map[string]int{}
	for range keys * each {
		r, ack := m.next(t)
		require.Equal(t, fmt.Sprint(next[string(r.Key)]), string(r.Value), "of key %s", r.Key)
		next[string(r.Key)]++
		ack()
	}
	publishing.Wait()
}

func contractOffsets(t *testing.T, b broker) {
	topic, group := b.topic(t, 1, nil), "contract-"+uuid.NewString()
	committed, err := kafka.CommittedOffsets(t.Context(), b.Brokers(), group, topic)
	require.NoError(t, err)
	require.Equal(t, map[int32]int64{0: -1}, committed)
	p := b.publisher(t)
	for i := range 6 {
		require.NoError(t, p.Publish(topic, letter("k", fmt.Sprint(i))))
	}
	first := b.join(t, group, topic)
	for i := range 4 {
		r, ack := first.next(t)
		require.Equal(t, int64(i), r.Offset)
		ack()
	}
	first.next(t) // and not acked
	b.eventuallyCommitted(t, group, topic, 4)
	require.Equal(t, int64(4), testkit.CommittedOffset(t, b.Brokers(), group, topic, 0), "the other client says the same")
	lag, err := kafka.Lag(t.Context(), b.Brokers(), group, topic)
	require.NoError(t, err)
	require.Equal(t, map[int32]int64{0: 2}, lag)
	at, err := kafka.Positions(t.Context(), b.Brokers(), group, topic)
	require.NoError(t, err)
	require.Equal(t, int64(4), at[0].Committed)
	require.WithinDuration(t, time.Now(), at[0].Oldest, time.Minute)

	first.Leave()
	second := b.join(t, group, topic)
	for i := 4; i < 6; i++ {
		r, ack := second.next(t)
		require.Equal(t, int64(i), r.Offset, "nothing is skipped, and what was acked does not come again")
		ack()
	}
	b.eventuallyCommitted(t, group, topic, 6)
}

func (b broker) eventuallyCommitted(t *testing.T, group, topic string, want int64) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		got, err := kafka.CommittedOffsets(t.Context(), b.Brokers(), group, topic)
		if err == nil && got[0] != want {
			err = fmt.Errorf("committed %d, not %d", got[0], want)
		}
		return err
	})
}

// contractLostOffset deletes what a group has not read yet, as retention would.
func contractLostOffset(t *testing.T, b broker) {
	topic, group := b.topic(t, 1, nil), "contract-"+uuid.NewString()
	p := b.publisher(t)
	for i := range 4 {
		require.NoError(t, p.Publish(topic, letter("k", fmt.Sprint(i))))
	}
	m := b.join(t, group, topic)
	_, ack := m.next(t)
	ack()
	b.eventuallyCommitted(t, group, topic, 1)
	m.Leave()
	b.admin(t, func(ctx context.Context, admin *kadm.Client) error {
		var gone kadm.Offsets
		gone.AddOffset(topic, 0, 3, -1)
		_, err := admin.DeleteRecords(ctx, gone)
		return err
	})
	again := b.join(t, group, topic)
	select {
	case m := <-again.messages:
		r, err := kafka.Record(m)
		require.NoError(t, err)
		require.FailNow(t, "records were lost in silence", "offset %d came after 0", r.Offset)
	case <-time.After(5 * time.Second):
	}
	require.Equal(t, int64(1), testkit.CommittedOffset(t, b.Brokers(), group, topic, 0))
}

func contractRebalance(t *testing.T, b broker) {
	const partitions, keys = 4, 40
	topic, group := b.topic(t, partitions, nil), "contract-"+uuid.NewString()
	p := b.publisher(t)
	round := func(name string) {
		for k := range keys {
			require.NoError(t, p.Publish(topic, letter(fmt.Sprint("k", k), name)))
		}
	}
	// serve acks everything and tells which partitions the member has got records from, in a round.
	type arrival struct {
		who, round string
		partition  int32
	}
	arrivals := make(chan arrival, 10*keys)
	serve := func(who string, m member) {
		go func() {
			for msg := range m.messages {
				if r, err := kafka.Record(msg); assert.NoError(t, err) {
					arrivals <- arrival{who, string(r.Value), r.Partition}
				}
				msg.Ack()
			}
		}()
	}
	// whole waits until every record of a round has come at least once, and returns who has got it.
	whole := func(name string) map[string]int {
		who, parts := map[string]int{}, map[int32]int{}
		for n := 0; n < keys; {
			select {
			case a := <-arrivals:
				if a.round == name {
					who[a.who]++
					parts[a.partition]++
					n++
				}
			case <-time.After(patience):
				require.FailNow(t, "not all records came", "round %s: %d of %d, by partition %v", name, n, keys, parts)
			}
		}
		require.Len(t, parts, partitions)
		return who
	}
	one := b.join(t, group, topic)
	serve("one", one)
	round("alone")
	require.Equal(t, map[string]int{"one": keys}, whole("alone"))

	two := b.join(t, group, topic)
	serve("two", two)
	testkit.Eventually(t, patience, func() error { // the group notices the new member with its next heartbeats
		name := "both-" + uuid.NewString()
		round(name)
		if who := whole(name); who["one"] == 0 || who["two"] == 0 {
			return fmt.Errorf("one has got everything: %v", who)
		}
		return nil
	})
	one.Leave()
	round("taken over")
	require.Equal(t, map[string]int{"two": keys}, whole("taken over"))
	testkit.Eventually(t, patience, func() error {
		lag, err := kafka.Lag(t.Context(), b.Brokers(), group, topic)
		for partition, n := range lag {
			if n != 0 {
				err = fmt.Errorf("partition %d lags by %d", partition, n)
			}
		}
		return err
	})
}

func contractRestart(t *testing.T, b broker) {
	topic, group := b.topic(t, 1, nil), "contract-"+uuid.NewString()
	p := b.publisher(t)
	for i := range 3 {
		require.NoError(t, p.Publish(topic, letter("k", fmt.Sprint(i))))
	}
	gone := b.join(t, group, topic)
	_, ack := gone.next(t)
	ack()
	b.eventuallyCommitted(t, group, topic, 1)
	gone.Leave()
	b.Kill()
	b.Restart()
	b.eventuallyCommitted(t, group, topic, 1) // the coordinator has to read its own log first
	stays := b.join(t, group, topic)
	r, ack := stays.next(t)
	require.Equal(t, "1", string(r.Value))
	ack()
	b.eventuallyCommitted(t, group, topic, 2)
	b.Kill()
	b.Restart()
	testkit.Eventually(t, patience, func() error { return p.Publish(topic, letter("k", "3")) })
	seen := map[string]bool{}
	for !seen["2"] || !seen["3"] { // the one in hand comes again after the loss of the connection
		r, ack := stays.next(t)
		require.NotEqual(t, "0", string(r.Value), "it was acked and committed")
		seen[string(r.Value)] = true
		ack()
	}
	b.eventuallyCommitted(t, group, topic, 4)
}
