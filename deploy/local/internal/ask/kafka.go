package ask

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/paycast/shared/event"
)

// Record reads the key and event id of one record from where the broker said that it stored it.
func (a *Asker) Record(ctx context.Context, partition int32, offset int64) (key, eventID string, err error) {
	err = a.read(ctx, partition, kgo.NewOffset().At(offset), func(r *kgo.Record) bool {
		key, eventID = string(r.Key), id(r)
		return false
	})
	return key, eventID, err
}

// Copies counts the records of one key by event id, from the partition's beginning to its end.
func (a *Asker) Copies(ctx context.Context, partition int32, key string) (map[string]int, error) {
	found := map[string]int{}
	err := a.read(ctx, partition, kgo.NewOffset().AtStart(), func(r *kgo.Record) bool {
		if string(r.Key) == key {
			found[id(r)]++
		}
		return true
	})
	return found, err
}

// read gives the records from an offset on to see, until that says no or there are no more.
func (a *Asker) read(ctx context.Context, partition int32, from kgo.Offset, see func(*kgo.Record) (more bool)) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(a.vars["KAFKA_BROKERS"]), kgo.ConsumePartitions(
		map[string]map[int32]kgo.Offset{event.Topic: {partition: from}}))
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("kafka: reading partition %d of %s: %w", partition, event.Topic, err)
		}
		for _, fetch := range fetches {
			for _, topic := range fetch.Topics {
				for _, p := range topic.Partitions {
					for _, r := range p.Records {
						if !see(r) || r.Offset+1 >= p.HighWatermark {
							return nil
						}
					}
				}
			}
		}
	}
}

func id(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == "ce_id" {
			return string(h.Value)
		}
	}
	return ""
}
