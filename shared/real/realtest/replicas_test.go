//go:build real

package realtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/paycast/shared/event"
	ours "example.com/paycast/shared/kafka"
	"example.com/paycast/shared/outbox"
	"example.com/paycast/shared/real"
	"example.com/paycast/shared/testkit"
)

// pair is a cluster of two brokers: a controller that is a broker too, and a second broker that may fail.
type pair struct {
	t             *testing.T
	first, second kafka
	client        *kgo.Client
	pub           *ours.Publisher
}

func startPair(t *testing.T) pair {
	t.Helper()
	controller := freePort(t)
	first := startKafka(t, real.Kafka{Port: freePort(t), Controller: controller,
		Extra: "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\nallow.everyone.if.no.acl.found=true\n"})
	port := freePort(t)
	second := startKafka(t, real.Kafka{Port: port, Controller: controller,
		Extra: fmt.Sprintf("process.roles=broker\nnode.id=2\nlisteners=PLAINTEXT://127.0.0.1:%d\n", port)})
	client, err := kgo.NewClient(kgo.SeedBrokers(first.addr))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	pub, err := ours.NewPublisher(ours.PublisherConfig{Brokers: first.addr, ClientID: "replicas", Log: slog.New(testkit.Logs())})
	require.NoError(t, err)
	t.Cleanup(func() { _ = pub.Close() }) // what it has given up may be under way
	return pair{t, first, second, client, pub}
}

// topic has the first broker as its leader and the second as its follower, and needs both.
func (p pair) topic(name string) {
	p.t.Helper()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
	replicas := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	replicas.Replicas = []int32{1, 2}
	needed, two := kmsg.NewCreateTopicsRequestTopicConfig(), "2"
	needed.Name, needed.Value = "min.insync.replicas", &two
	topic.ReplicaAssignment = append(topic.ReplicaAssignment, replicas)
	topic.Configs = append(topic.Configs, needed)
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, topic)
	testkit.Eventually(p.t, patience, func() error { // the second broker may be known a moment later
		ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
		defer cancel()
		answer, err := request.RequestWith(ctx, p.client)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(answer.Topics[0].ErrorCode); !errors.Is(err, kerr.TopicAlreadyExists) { // by a try that was cut off
			return err
		}
		return nil
	})
	testkit.Eventually(p.t, patience, func() error { return p.publish(name, "first") })
}

func (p pair) publish(topic, value string) error {
	return p.pub.Publish(topic, ours.Message(event.Record{Key: []byte("k"), Value: []byte(value)}))
}

func TestALostFollowerIsNeverTakenForAnAcceptedRecord(t *testing.T) {
	p := startPair(t)
	p.topic("replicated")
	p.second.Kill()
	var tooFew bool
	for i := 0; i < 20 && !tooFew; i++ {
		err := p.publish("replicated", fmt.Sprint("alone-", i))
		require.Error(t, err, "one copy of two is not enough")
		// Before the leader gives the follower up it waits for it and answers 7; the record may well be stored.
		waited := errors.Is(err, sarama.ErrRequestTimedOut) || errors.Is(err, sarama.ErrNotEnoughReplicasAfterAppend)
		tooFew = errors.Is(err, sarama.ErrNotEnoughReplicas)
		require.True(t, waited || tooFew, "%v", err)
		if waited {
			require.Equal(t, "unknown", outbox.Classify(err))
		} else {
			require.Equal(t, "unreachable", outbox.Classify(err))
		}
	}
	require.True(t, tooFew)
	p.second.Restart()
	testkit.Eventually(t, patience, func() error { return p.publish("replicated", "both") })
	stored := map[string]int{}
	for _, r := range testkit.ReadTopic(t, p.first.addr, "replicated") {
		stored[string(r.Value)]++
	}
	require.Positive(t, stored["first"])
	require.Positive(t, stored["both"])
}

func TestATopicThatWeMayNotWriteRefuses(t *testing.T) {
	p := startPair(t)
	p.topic("forbidden")
	p.topic("allowed")
	acls := kadm.NewACLs().Topics("forbidden").ResourcePatternType(kadm.ACLPatternLiteral).
		Operations(kadm.OpWrite).Deny("User:*").DenyHosts("*")
	made, err := kadm.NewClient(p.client).CreateACLs(t.Context(), acls)
	require.NoError(t, err)
	for _, one := range made {
		require.NoError(t, one.Err)
	}
	testkit.Eventually(t, patience, func() error { // the rights travel through the controller's log
		if err = p.publish("forbidden", "v"); err == nil {
			return errors.New("it is still allowed")
		}
		return nil
	})
	require.ErrorIs(t, err, sarama.ErrTopicAuthorizationFailed)
	require.Equal(t, "refused", outbox.Classify(err))
	require.NoError(t, p.publish("allowed", "v"))
}
