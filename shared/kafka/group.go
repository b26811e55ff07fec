package kafka

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
)

// NewGroup joins the group with the very settings of NewSubscriber, for whoever reads records in another way. Offsets
// that are marked are committed within a second, and when a session ends. Its errors must be read.
func NewGroup(c SubscriberConfig) (sarama.ConsumerGroup, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	group, err := sarama.NewConsumerGroup(BrokerList(c.Brokers), c.Group, subscriberConfig(c.ClientID, c.Session))
	if err != nil {
		return nil, fmt.Errorf("connecting to kafka as group %s: %w", c.Group, err)
	}
	return group, nil
}

// Consumed is a record of a group's claim as NewSubscriber delivers it. It cannot fail, whatever the bytes are.
func Consumed(m *sarama.ConsumerMessage) *message.Message { return Message(fromSarama(m)) }

// complete fills what was left out and refuses what would lose messages.
func (c SubscriberConfig) complete() (SubscriberConfig, error) {
	switch {
	case len(BrokerList(c.Brokers)) == 0:
		return c, errors.New("no kafka brokers given")
	case c.Group == "":
		return c, errors.New("no consumer group given") // without one, offsets are never committed
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Session == 0 {
		c.Session = 10 * time.Second
	}
	return c, nil
}
