package kafka

import (
	"log/slog"
	"time"

	"github.com/IBM/sarama"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

// SubscriberConfig says what to read. Everything that a guarantee depends on is fixed inside.
type SubscriberConfig struct {
	Brokers  string // host:port, comma-separated
	ClientID string
	Group    string
	Session  time.Duration // how long a dead member keeps its partitions; 0 means 10 s
	Log      *slog.Logger
}

// NewSubscriber reads as a member of a group. An offset is committed only after the message's ack, within a second.
// Each message is given by Record, whatever its bytes are: there is no record that this subscriber cannot deliver.
// A message that is nacked comes again after 100 ms and blocks its partition meanwhile.
func NewSubscriber(c SubscriberConfig) (*Subscriber, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	sessions := &sessions{}
	inner, err := wkafka.NewSubscriber(wkafka.SubscriberConfig{
		Brokers:               BrokerList(c.Brokers),
		Unmarshaler:           unmarshaler{},
		OverwriteSaramaConfig: subscriberConfig(c.ClientID, c.Session),
		ConsumerGroup:         c.Group,
		Tracer:                sessions,
	}, Logger(c.Log))
	if err != nil {
		return nil, err
	}
	return &Subscriber{inner, sessions}, nil
}

// unmarshaler never fails. An error here would end the claim; the group would rejoin and read the same record again,
// for ever, and no handler would see it.
type unmarshaler struct{}

func (unmarshaler) Unmarshal(m *sarama.ConsumerMessage) (*message.Message, error) {
	return Consumed(m), nil
}
