package kafka

import (
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// Times of the client. One broker round trip is bounded by dial + read; the relay puts its own deadline around a send,
// because retries and metadata refreshes add up and sarama takes no context.
const (
	dialTimeout    = 2 * time.Second
	readTimeout    = 4 * time.Second // longer than replicaTimeout, or the broker's answer would always come too late
	replicaTimeout = 2 * time.Second
	retryBackoff   = 100 * time.Millisecond
)

// MaxMessageBytes bounds a record as the client counts it, and a produce batch too. It is Kafka's own default, so the
// client refuses what the broker would refuse.
const MaxMessageBytes = 1 << 20

// BrokerList splits "host:port,host:port".
func BrokerList(brokers string) []string {
	var list []string
	for b := range strings.SplitSeq(brokers, ",") {
		if b = strings.TrimSpace(b); b != "" {
			list = append(list, b)
		}
	}
	return list
}

// baseConfig holds what every client needs.
func baseConfig(clientID string) *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = clientID
	// Kafka 4 has dropped the old protocol versions, and the consumer needs a recent one.
	c.Version = sarama.V3_6_0_0
	c.Net.DialTimeout, c.Net.ReadTimeout, c.Net.WriteTimeout = dialTimeout, readTimeout, readTimeout
	// The defaults let one metadata refresh hang for a minute and more.
	c.Metadata.Retry.Max, c.Metadata.Retry.Backoff = 1, retryBackoff
	c.Metadata.Timeout = readTimeout
	// A mistyped topic must fail, not come into being with one partition.
	c.Metadata.AllowAutoTopicCreation = false
	return c
}

func publisherConfig(clientID string) *sarama.Config {
	c := baseConfig(clientID)
	// "Accepted" has to survive the loss of the leader.
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Timeout = replicaTimeout
	// Sarama's own retries neither double nor reorder a record. Idempotent demands acks from all, one open request and
	// at least one retry.
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
	c.Producer.Retry.Max, c.Producer.Retry.Backoff = 2, retryBackoff
	// FNV-1a of the key. Another client family hashes otherwise and would put a key on another partition.
	c.Producer.Partitioner = sarama.NewHashPartitioner
	c.Producer.MaxMessageBytes = MaxMessageBytes
	c.Producer.Return.Successes, c.Producer.Return.Errors = true, true
	return c
}

func subscriberConfig(clientID string, session time.Duration) *sarama.Config {
	c := baseConfig(clientID)
	c.Consumer.Return.Errors = true
	// A new group must see what was published before its first start.
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	// An offset that is out of range means lost records: an alarm and a reconciliation, not a silent jump.
	c.Consumer.Group.ResetInvalidOffsets = false
	// Offsets are marked after the ack, which comes after the commit. The interval only sets how much is redelivered
	// after a crash; committing each offset costs a broker round trip per message.
	c.Consumer.Offsets.AutoCommit.Enable = true
	c.Consumer.Offsets.AutoCommit.Interval = time.Second
	c.Consumer.Group.Session.Timeout = session
	c.Consumer.Group.Heartbeat.Interval = session / 3
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	// The default of 100 ms drops the fetch subscription whenever a handler is slower than that.
	c.Consumer.MaxProcessingTime = 5 * time.Second
	c.Consumer.MaxWaitTime = 250 * time.Millisecond
	// The coordinator answers a join when all members have joined, up to this time later; a shorter read would break
	// the connection in every slow rebalance.
	c.Consumer.Group.Rebalance.Timeout = 2 * session
	c.Consumer.Group.Rebalance.Retry.Backoff = 500 * time.Millisecond
	c.Net.ReadTimeout = c.Consumer.Group.Rebalance.Timeout + 5*time.Second
	return c
}
