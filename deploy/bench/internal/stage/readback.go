package stage

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/paycast/deploy/bench/internal/design"
	"example.com/paycast/shared/kafka"
)

// place is where the first copy of one version of one key stands.
type place struct {
	version   int64
	partition int32
	offset    int64
}

// readBack reads every record of the drain and counts. Version n+1 of a key violates the order when it does not stand
// behind version n in the same partition: a consumer may then see n+1 first.
func (b *broker) readBack(ctx context.Context, out *Outcome) error {
	n, err := b.count(ctx)
	if err != nil {
		return err
	}
	starts := map[int32]kgo.Offset{}
	b.from.Each(func(o kadm.ListedOffset) { starts[o.Partition] = kgo.NewOffset().At(o.Offset) })
	reader, err := kgo.NewClient(
		kgo.SeedBrokers(kafka.BrokerList(b.addr)...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{design.Topic: starts}))
	if err != nil {
		return err
	}
	defer reader.Close()
	seen := make(map[string]bool, n)
	keys := map[string][]place{}
	for out.Records < n {
		fetched := reader.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			return fmt.Errorf("reading back: %w", err)
		}
		fetched.EachRecord(func(r *kgo.Record) {
			out.Records++
			id := header(r, "ce_id")
			if seen[id] {
				return
			}
			seen[id] = true
			version, _ := strconv.ParseInt(header(r, "ce_aggregateversion"), 10, 64)
			key := header(r, "ce_subject")
			keys[key] = append(keys[key], place{version, r.Partition, r.Offset})
		})
	}
	out.Distinct = len(seen)
	for _, places := range keys {
		if v := violations(places); v > 0 {
			out.Violations += v
			out.Keys++
		}
	}
	return nil
}

func violations(places []place) (n int) {
	slices.SortFunc(places, func(a, b place) int { return int(a.version - b.version) })
	for i := 1; i < len(places); i++ {
		before, after := places[i-1], places[i]
		if before.partition != after.partition || before.offset > after.offset {
			n++
		}
	}
	return n
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
