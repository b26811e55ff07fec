package consume

import (
	"context"
	"hash/fnv"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/paycast/deploy/bench/internal/design"
	"example.com/paycast/shared/event"
)

// Fill writes the backlog to the topic, each key on the partition that our publisher would choose.
func Fill(ctx context.Context, brokers string, rows design.Rows) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(kgo.SaramaCompatHasher(func(key []byte) uint32 {
		h := fnv.New32a()
		_, _ = h.Write(key) // a hash never fails to write
		return h.Sum32()
	}))))
	if err != nil {
		return err
	}
	defer client.Close()
	var failed error
	for i := range rows.N {
		e := rows.Event(i)
		r := &kgo.Record{Topic: event.Topic, Key: []byte(e.AggregateID), Value: e.Payload}
		for _, h := range e.Headers() {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err // the client calls one after the other
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	return failed
}
