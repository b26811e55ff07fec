package kafkatest

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
)

func contractTopics(t *testing.T, b broker) {
	names := []string{"contract-" + uuid.NewString(), "contract-" + uuid.NewString()}
	done := make(chan error, 3)
	for range cap(done) {
		go func() { done <- kafka.EnsureTopics(t.Context(), b.Brokers(), names...) }()
	}
	for range cap(done) {
		require.NoError(t, <-done)
	}
	require.NoError(t, kafka.EnsureTopics(t.Context(), b.Brokers(), names...), "there already")
	for _, name := range names {
		high, err := kafka.HighWatermarks(t.Context(), b.Brokers(), name)
		require.NoError(t, err)
		require.Len(t, high, event.Partitions)
	}
	b.admin(t, func(ctx context.Context, admin *kadm.Client) error {
		got, err := admin.DescribeTopicConfigs(ctx, names...)
		if err != nil {
			return err
		}
		for _, topic := range got {
			values := map[string]string{}
			for _, c := range topic.Configs {
				values[c.Key] = c.MaybeValue()
			}
			assert.Equal(t, "delete", values["cleanup.policy"])
			assert.Equal(t, "604800000", values["retention.ms"])
			assert.Equal(t, "1048588", values["max.message.bytes"], "the broker's own limit, which our client's stays below")
		}
		return nil
	})
}

func contractPartitionCount(t *testing.T, b broker) {
	narrow := b.topic(t, 3, nil)
	err := kafka.EnsureTopics(t.Context(), b.Brokers(), "contract-"+uuid.NewString(), narrow)
	require.ErrorContains(t, err, narrow+" has 3 partitions and must have 12")
}
