package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"example.com/paycast/shared/event"
)

// Retention is how long topics keep a record. Replays from Kafka reach back this far, and an outbox row must outlive it.
const Retention = 7 * 24 * time.Hour

// EnsureTopics creates the topics that are missing, each with event.Partitions partitions, and returns when all of them
// have leaders that serve: Kafka answers a creation earlier than that. A topic that exists with another number of
// partitions is an error, because its keys would be on other partitions than ours. Any number of callers may run it at
// once.
func EnsureTopics(ctx context.Context, brokers string, topics ...string) error {
	admin, err := sarama.NewClusterAdmin(BrokerList(brokers), baseConfig("topics"))
	if err != nil {
		return fmt.Errorf("connecting to kafka to create topics: %w", err)
	}
	defer func() { _ = admin.Close() }()
	for _, topic := range topics {
		if err := create(admin, topic); err != nil {
			return fmt.Errorf("creating topic %s: %w", topic, err)
		}
	}
	for {
		err := verify(admin, topics)
		for i := 0; i < len(topics) && err == nil; i++ {
			_, err = HighWatermarks(ctx, brokers, topics[i]) // a leader is named before it knows that it is one
		}
		if err == nil || errors.Is(err, errPartitions) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the leaders of topics: %w (last: %w)", ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

var errPartitions = errors.New("another number of partitions")

func create(admin sarama.ClusterAdmin, topic string) error {
	retention, policy := strconv.FormatInt(Retention.Milliseconds(), 10), "delete"
	err := admin.CreateTopic(topic, &sarama.TopicDetail{
		NumPartitions:     event.Partitions,
		ReplicationFactor: -1, // the cluster's default
		ConfigEntries: map[string]*string{
			"cleanup.policy": &policy, // compaction would drop all but the last event of an order
			"retention.ms":   &retention,
		},
	}, false)
	if errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return nil
	}
	return err
}

func verify(admin sarama.ClusterAdmin, topics []string) error {
	all, err := admin.DescribeTopics(topics)
	if err != nil {
		return err
	}
	if len(all) != len(topics) {
		return fmt.Errorf("kafka describes %d of %d topics", len(all), len(topics))
	}
	for _, t := range all {
		if !errors.Is(t.Err, sarama.ErrNoError) {
			return fmt.Errorf("topic %s: %w", t.Name, t.Err)
		}
		if n := len(t.Partitions); n != event.Partitions {
			return fmt.Errorf("topic %s has %d partitions and must have %d: %w", t.Name, n, event.Partitions, errPartitions)
		}
		for _, p := range t.Partitions {
			if !errors.Is(p.Err, sarama.ErrNoError) || p.Leader < 0 {
				return fmt.Errorf("topic %s has no leader of partition %d", t.Name, p.ID)
			}
		}
	}
	return nil
}
