package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

// CommittedOffsets gives, per partition, the offset from which the group goes on; -1 where it has committed nothing.
// All records below it have been acked.
func CommittedOffsets(ctx context.Context, brokers, group, topic string) (map[int32]int64, error) {
	return ask(ctx, brokers, func(c sarama.Client) (map[int32]int64, error) {
		partitions, err := c.Partitions(topic)
		if err != nil {
			return nil, err
		}
		return committed(c, group, topic, partitions)
	})
}

// HighWatermarks gives, per partition, the offset that the next record will get.
func HighWatermarks(ctx context.Context, brokers, topic string) (map[int32]int64, error) {
	return ask(ctx, brokers, func(c sarama.Client) (map[int32]int64, error) {
		partitions, err := c.Partitions(topic)
		if err != nil {
			return nil, err
		}
		return watermarks(c, topic, partitions, sarama.OffsetNewest)
	})
}

// Lag gives, per partition, how many records the group has yet to ack. A group that has committed nothing lags by
// everything that the topic still holds.
func Lag(ctx context.Context, brokers, group, topic string) (map[int32]int64, error) {
	return ask(ctx, brokers, func(c sarama.Client) (map[int32]int64, error) {
		partitions, err := c.Partitions(topic)
		if err != nil {
			return nil, err
		}
		done, err := committed(c, group, topic, partitions)
		if err != nil {
			return nil, err
		}
		oldest, err := watermarks(c, topic, partitions, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		lag, err := watermarks(c, topic, partitions, sarama.OffsetNewest)
		if err != nil {
			return nil, err
		}
		for p := range lag {
			lag[p] -= max(done[p], oldest[p])
		}
		return lag, nil
	})
}

// ask runs a question on a client of its own.
func ask(ctx context.Context, brokers string, question func(sarama.Client) (map[int32]int64, error)) (map[int32]int64, error) {
	return within(ctx, func() (map[int32]int64, error) {
		c, err := sarama.NewClient(BrokerList(brokers), baseConfig("offsets"))
		if err != nil {
			return nil, fmt.Errorf("connecting to kafka to read offsets: %w", err)
		}
		offsets, err := question(c)
		if closeErr := c.Close(); err == nil && closeErr != nil {
			err = closeErr
		}
		if err != nil {
			err = fmt.Errorf("reading offsets: %w", err)
		}
		return offsets, err
	})
}

// within is for what sarama does, which takes no context: an answer after ctx ends is thrown away.
func within[T any](ctx context.Context, do func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	got := make(chan answer, 1)
	go func() {
		value, err := do()
		got <- answer{value, err}
	}()
	select {
	case a := <-got:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("asking kafka: %w", ctx.Err())
	}
}

func committed(c sarama.Client, group, topic string, partitions []int32) (map[int32]int64, error) {
	coordinator, err := c.Coordinator(group)
	if err != nil {
		return nil, err
	}
	response, err := coordinator.FetchOffset(sarama.NewOffsetFetchRequest(c.Config().Version, group, map[string][]int32{topic: partitions}))
	if err != nil {
		return nil, err
	}
	offsets := make(map[int32]int64, len(partitions))
	switch err := response.GroupError(); {
	case errors.Is(err, sarama.ErrGroupIDNotFound): // it has never joined
		for _, p := range partitions {
			offsets[p] = -1
		}
		return offsets, nil
	case !errors.Is(err, sarama.ErrNoError):
		return nil, err
	}
	for _, p := range partitions {
		block := response.GetBlock(topic, p)
		if block == nil {
			return nil, fmt.Errorf("partition %d: %w", p, sarama.ErrIncompleteResponse)
		}
		if !errors.Is(block.Err, sarama.ErrNoError) {
			return nil, fmt.Errorf("partition %d: %w", p, block.Err)
		}
		offsets[p] = block.Offset
	}
	return offsets, nil
}

func watermarks(c sarama.Client, topic string, partitions []int32, which int64) (map[int32]int64, error) {
	offsets := make(map[int32]int64, len(partitions))
	for _, p := range partitions {
		o, err := c.GetOffset(topic, p, which)
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", p, err)
		}
		offsets[p] = o
	}
	return offsets, nil
}
