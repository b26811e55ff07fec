package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"example.com/paycast/shared/settings"
)

// Settings reports what the publisher's client runs with.
func (p *Publisher) Settings(_ context.Context, to *settings.Report) error {
	c := publisherConfig(p.config.ClientID)
	acks := map[sarama.RequiredAcks]string{sarama.WaitForAll: "all", sarama.WaitForLocal: "leader", sarama.NoResponse: "none"}
	to.Producers = append(to.Producers, settings.Producer{
		Acks: acks[c.Producer.RequiredAcks], Idempotent: c.Producer.Idempotent, OpenRequests: c.Net.MaxOpenRequests,
		MakesTopics: c.Metadata.AllowAutoTopicCreation,
	})
	return nil
}

// GroupSettings are those of the client that NewSubscriber makes with this session time-out.
func GroupSettings(group string, session time.Duration, topics ...string) settings.Group {
	c := subscriberConfig("settings", session)
	initial := map[int64]string{sarama.OffsetOldest: "oldest", sarama.OffsetNewest: "newest"}
	return settings.Group{
		Group: group, Topics: topics,
		Initial: initial[c.Consumer.Offsets.Initial], Reset: c.Consumer.Group.ResetInvalidOffsets,
		Session: settings.Duration(c.Consumer.Group.Session.Timeout),
		Rejoin:  settings.Duration(c.Consumer.Group.Rebalance.Timeout),

		MakesTopics: c.Metadata.AllowAutoTopicCreation,
	}
}

// Seen asks the brokers how they are set and how they have the topics. A topic that is missing is left out.
func Seen(ctx context.Context, brokers string, topics ...string) (settings.Kafka, error) {
	return within(ctx, func() (seen settings.Kafka, err error) {
		admin, err := sarama.NewClusterAdmin(BrokerList(brokers), baseConfig("topics"))
		if err != nil {
			return seen, fmt.Errorf("connecting to kafka to ask about topics: %w", err)
		}
		defer func() { _ = admin.Close() }()
		if seen.Topics, err = describe(admin, topics); err != nil {
			return seen, err
		}
		seen.Brokers, err = makeTopics(admin)
		return seen, err
	})
}

// autoCreate is the brokers' setting that lets a topic come into being when somebody uses it.
const autoCreate = "auto.create.topics.enable"

// makeTopics asks each broker, by its id, whether it makes a topic when somebody uses it: true or false in the broker's
// own words, and empty where it does not tell.
func makeTopics(admin sarama.ClusterAdmin) (map[int32]string, error) {
	all, _, err := admin.DescribeCluster()
	if err != nil {
		return nil, fmt.Errorf("asking kafka for its brokers: %w", err)
	}
	told := map[int32]string{}
	for _, b := range all {
		set, err := configOf(admin, sarama.BrokerResource, strconv.Itoa(int(b.ID())), autoCreate)
		if err != nil {
			return nil, fmt.Errorf("asking kafka's broker %d: %w", b.ID(), err)
		}
		told[b.ID()] = set[autoCreate]
	}
	return told, nil
}

// configOf asks for some settings of one broker or topic. What it does not tell is left out.
func configOf(admin sarama.ClusterAdmin, kind sarama.ConfigResourceType, name string, names ...string) (map[string]string, error) {
	described, err := admin.DescribeConfigs([]*sarama.ConfigResource{{Type: kind, Name: name, ConfigNames: names}}, sarama.DescribeConfigsOptions{})
	if err == nil && (len(described) != 1 || described[0].ErrorCode != 0) {
		err = sarama.ErrIncompleteResponse
	}
	if err != nil {
		return nil, err
	}
	set := map[string]string{}
	for _, e := range described[0].Configs {
		set[e.Name] = e.Value
	}
	return set, nil
}

func describe(admin sarama.ClusterAdmin, topics []string) (found []settings.Topic, err error) {
	all, err := admin.DescribeTopics(topics)
	if err != nil {
		return nil, fmt.Errorf("asking kafka about topics: %w", err)
	}
	for _, t := range all {
		if errors.Is(t.Err, sarama.ErrUnknownTopicOrPartition) {
			continue
		}
		set, err := configOf(admin, sarama.TopicResource, t.Name, "cleanup.policy", "retention.ms")
		if err != nil {
			return nil, fmt.Errorf("asking kafka about topic %s: %w", t.Name, err)
		}
		ms, err := strconv.ParseInt(set["retention.ms"], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("topic %s: retention.ms is %q", t.Name, set["retention.ms"])
		}
		found = append(found, settings.Topic{
			Topic: t.Name, Partitions: len(t.Partitions), Cleanup: set["cleanup.policy"], Retention: time.Duration(ms) * time.Millisecond,
		})
	}
	return found, nil
}
