package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// Position is where a group stands in a partition.
type Position struct {
	Committed int64     // where the group goes on; the oldest record when it has committed nothing
	Lag       int64     // records that it has yet to ack
	Oldest    time.Time // when the first of them was written; zero without lag, or when it cannot be read
}

// Positions gives the group's position in each partition of the topic. It reads one record of each partition that lags.
func Positions(ctx context.Context, brokers, group, topic string) (map[int32]Position, error) {
	type answer struct {
		positions map[int32]Position
		err       error
	}
	got := make(chan answer, 1)
	go func() {
		positions, err := positions(brokers, group, topic)
		got <- answer{positions, err}
	}()
	select {
	case a := <-got:
		return a.positions, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func positions(brokers, group, topic string) (_ map[int32]Position, err error) {
	c, err := sarama.NewClient(BrokerList(brokers), baseConfig("positions"))
	if err != nil {
		return nil, fmt.Errorf("connecting to kafka to read positions: %w", err)
	}
	defer func() {
		if closeErr := c.Close(); err == nil {
			err = closeErr
		}
	}()
	partitions, err := c.Partitions(topic)
	if err != nil {
		return nil, fmt.Errorf("reading positions in %s: %w", topic, err)
	}
	done, err := committed(c, group, topic, partitions)
	if err != nil {
		return nil, fmt.Errorf("reading positions in %s: %w", topic, err)
	}
	oldest, err := watermarks(c, topic, partitions, sarama.OffsetOldest)
	if err != nil {
		return nil, fmt.Errorf("reading positions in %s: %w", topic, err)
	}
	newest, err := watermarks(c, topic, partitions, sarama.OffsetNewest)
	if err != nil {
		return nil, fmt.Errorf("reading positions in %s: %w", topic, err)
	}
	consumer, err := sarama.NewConsumerFromClient(c)
	if err != nil {
		return nil, err
	}
	defer func() { _ = consumer.Close() }()
	out := make(map[int32]Position, len(partitions))
	for _, p := range partitions {
		at := Position{Committed: max(done[p], oldest[p])}
		if at.Lag = newest[p] - at.Committed; at.Lag > 0 {
			at.Oldest = writtenAt(consumer, topic, p, at.Committed)
		}
		out[p] = at
	}
	return out, nil
}

// writtenAt reads the time of one record. It is for a metric, so what cannot be read in time is left out.
func writtenAt(c sarama.Consumer, topic string, partition int32, offset int64) time.Time {
	pc, err := c.ConsumePartition(topic, partition, offset)
	if err != nil {
		return time.Time{}
	}
	defer func() { _ = pc.Close() }()
	select {
	case m := <-pc.Messages():
		if m != nil {
			return m.Timestamp.UTC()
		}
	case <-time.After(readTimeout):
	}
	return time.Time{}
}
