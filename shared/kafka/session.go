package kafka

import (
	"fmt"
	"sync"

	"github.com/IBM/sarama"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
)

// Subscriber is Watermill's, and knows besides when a partition has been taken away.
type Subscriber struct {
	*wkafka.Subscriber
	sessions *sessions
}

// Lost is closed when this member no longer has the partition from which it received its last message. Whoever holds
// such a message unacked holds up the whole group: no member gets anything before all have let go. To let go, ack it
// after Lost is closed: the offset is not marked then, and the partition's next owner gets the message.
func (s *Subscriber) Lost(topic string, partition int32) <-chan struct{} {
	return s.sessions.of(topic, partition)
}

// sessions remembers the group session under which each partition is read. watermill-kafka does not watch it while a
// message is out, and its only way in is the hook for tracers.
type sessions struct {
	mu   sync.Mutex
	ends map[string]<-chan struct{}
}

func (s *sessions) of(topic string, partition int32) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ends[fmt.Sprintf("%s/%d", topic, partition)]
}

func (s *sessions) begin(topic string, partition int32, end <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends == nil {
		s.ends = map[string]<-chan struct{}{}
	}
	s.ends[fmt.Sprintf("%s/%d", topic, partition)] = end
}

func (s *sessions) WrapConsumerGroupHandler(h sarama.ConsumerGroupHandler) sarama.ConsumerGroupHandler {
	return watched{h, s}
}

func (s *sessions) WrapConsumer(c sarama.Consumer) sarama.Consumer { return c }
func (s *sessions) WrapPartitionConsumer(c sarama.PartitionConsumer) sarama.PartitionConsumer {
	return c
}
func (s *sessions) WrapSyncProducer(_ *sarama.Config, p sarama.SyncProducer) sarama.SyncProducer {
	return p
}

type watched struct {
	sarama.ConsumerGroupHandler
	sessions *sessions
}

func (w watched) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	w.sessions.begin(claim.Topic(), claim.Partition(), session.Context().Done())
	return w.ConsumerGroupHandler.ConsumeClaim(session, claim)
}
