package kafka

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
)

// An upgrade of sarama, or a line lost in a merge, must not change in silence what the guarantees rest on: the tests
// read the effective configuration, and sarama's own validation has to accept it.

func TestPublisherKeepsItsSafeSettings(t *testing.T) {
	t.Parallel()
	c := publisherConfig("relay")
	require.NoError(t, c.Validate())
	require.Equal(t, "relay", c.ClientID)
	require.Equal(t, sarama.V3_6_0_0, c.Version)
	require.Equal(t, sarama.WaitForAll, c.Producer.RequiredAcks)
	require.Equal(t, 2*time.Second, c.Producer.Timeout)
	require.True(t, c.Producer.Idempotent)
	require.Equal(t, 1, c.Net.MaxOpenRequests)
	require.Equal(t, 2, c.Producer.Retry.Max)
	require.Equal(t, 100*time.Millisecond, c.Producer.Retry.Backoff)
	require.True(t, c.Producer.Return.Successes)
	require.True(t, c.Producer.Return.Errors)
	require.Equal(t, 1<<20, c.Producer.MaxMessageBytes)
	require.Empty(t, c.Producer.Interceptors)
	require.Empty(t, c.Producer.Transaction.ID)
	requireBoundedTimes(t, c)
	require.Greater(t, c.Net.ReadTimeout, c.Producer.Timeout, "the broker's answer must be able to arrive")
	require.Equal(t, 4*time.Second, c.Net.ReadTimeout)
}

func TestPublisherChoosesThePartitionByKeyAlone(t *testing.T) {
	t.Parallel()
	p := publisherConfig("relay").Producer.Partitioner("order-events")
	require.True(t, p.RequiresConsistency())
	for key, want := range map[string]int32{"O-1": 4, "O-2": 1, "O-1001": 1} { // FNV-1a; other numbers would move live orders
		got, err := p.Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, 12)
		require.NoError(t, err)
		require.Equal(t, want, got, key)
	}
}

func TestSubscriberKeepsItsSafeSettings(t *testing.T) {
	t.Parallel()
	c := subscriberConfig("points", 6*time.Second)
	require.NoError(t, c.Validate())
	require.Equal(t, sarama.V3_6_0_0, c.Version)
	require.Equal(t, sarama.OffsetOldest, c.Consumer.Offsets.Initial)
	require.False(t, c.Consumer.Group.ResetInvalidOffsets)
	require.True(t, c.Consumer.Offsets.AutoCommit.Enable)
	require.Equal(t, time.Second, c.Consumer.Offsets.AutoCommit.Interval)
	require.True(t, c.Consumer.Return.Errors)
	require.Equal(t, 6*time.Second, c.Consumer.Group.Session.Timeout)
	require.Equal(t, 2*time.Second, c.Consumer.Group.Heartbeat.Interval)
	require.Equal(t, 5*time.Second, c.Consumer.MaxProcessingTime)
	require.Empty(t, c.Consumer.Interceptors)
	requireBoundedTimes(t, c)
	require.Greater(t, c.Net.ReadTimeout, c.Consumer.Group.Rebalance.Timeout, "a join is answered as late as that")
}

func requireBoundedTimes(t *testing.T, c *sarama.Config) {
	t.Helper()
	require.False(t, c.Metadata.AllowAutoTopicCreation)
	require.Equal(t, 1, c.Metadata.Retry.Max)
	require.Equal(t, 100*time.Millisecond, c.Metadata.Retry.Backoff)
	require.Equal(t, 4*time.Second, c.Metadata.Timeout)
	require.Equal(t, 2*time.Second, c.Net.DialTimeout)
	require.Equal(t, 4*time.Second, c.Net.WriteTimeout)
}
