package testkit

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/paycast/shared/event"
)

// kafkaTimeout bounds each call below. They are another client than the one under test, so that the two do not agree on
// the same mistake.
const kafkaTimeout = 2 * time.Minute

// ReadTopic returns all that the topic holds now, by partition and then offset.
func ReadTopic(t testing.TB, brokers, topic string) []event.Record {
	t.Helper()
	client := newClient(t, brokers)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), kafkaTimeout)
	defer cancel()
	admin := kadm.NewClient(client)
	starts, startErr := admin.ListStartOffsets(ctx, topic)
	ends, endErr := admin.ListEndOffsets(ctx, topic)
	if err := errors.Join(startErr, endErr, starts.Error(), ends.Error()); err != nil {
		t.Fatalf("reading %s: %v", topic, err)
	}
	from := map[int32]kgo.Offset{} // only partitions that hold something, so that none is waited for
	to := map[int32]int64{}
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(topic, end.Partition)
		if start.Offset < end.Offset {
			from[end.Partition], to[end.Partition] = kgo.NewOffset().At(start.Offset), end.Offset
		}
	})
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: from})
	var records []event.Record
	for len(to) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("reading %s: %v", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, wanted := to[r.Partition]
			if !wanted || r.Offset >= end {
				return
			}
			if r.Offset == end-1 {
				delete(to, r.Partition)
			}
			records = append(records, record(r))
		})
	}
	slices.SortFunc(records, func(a, b event.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return records
}

func record(r *kgo.Record) event.Record {
	out := event.Record{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: r.Timestamp, Key: r.Key, Value: r.Value,
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, event.Header{Key: h.Key, Value: h.Value})
	}
	return out
}

// Produce puts records on the topic in order, each on the partition that our publisher would choose for its key. Of a
// record it takes key, value and headers as they are, so that a test can send what no publisher would.
func Produce(t testing.TB, brokers, topic string, records ...event.Record) {
	t.Helper()
	client := newClient(t, brokers, kgo.RecordPartitioner(kgo.StickyKeyPartitioner(kgo.SaramaCompatHasher(fnv1a))))
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), kafkaTimeout)
	defer cancel()
	for _, r := range records {
		out := &kgo.Record{Topic: topic, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		if err := client.ProduceSync(ctx, out).FirstErr(); err != nil {
			t.Fatalf("producing to %s: %v", topic, err)
		}
	}
}

func fnv1a(key []byte) uint32 {
	h := fnv.New32a()
	_, _ = h.Write(key) // a hash never fails to write
	return h.Sum32()
}

// CommittedOffset returns the next offset that the group would read of the partition, or -1 if it has committed none.
func CommittedOffset(t testing.TB, brokers, group, topic string, partition int32) int64 {
	t.Helper()
	client := newClient(t, brokers)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), kafkaTimeout)
	defer cancel()
	offsets, err := kadm.NewClient(client).FetchOffsets(ctx, group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // it has never committed
		t.Fatalf("reading the offsets of group %s: %v", group, err)
	}
	if offset, ok := offsets.Lookup(topic, partition); ok {
		return offset.At
	}
	return -1
}

// ForgetGroup removes what the broker knows of the group, its offsets. The group must have no members.
func ForgetGroup(t testing.TB, brokers, group string) {
	t.Helper()
	client := newClient(t, brokers)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), kafkaTimeout)
	defer cancel()
	deleted, err := kadm.NewClient(client).DeleteGroups(ctx, group)
	if err := errors.Join(err, deleted.Error()); err != nil {
		t.Fatalf("removing group %s: %v", group, err)
	}
}

func newClient(t testing.TB, brokers string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(brokers), kgo.FetchMaxWait(200*time.Millisecond))...)
	if err != nil {
		t.Fatalf("opening a Kafka client: %v", err)
	}
	return client
}
