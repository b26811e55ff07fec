package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/paycast/deploy/bench/internal/consume"
	"example.com/paycast/deploy/bench/internal/design"
	"example.com/paycast/shared/embedded"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
)

// ServeBroker is the broker process: kfake at addr, on dir, with the topic and the one of the consumers' group. Each
// produce request waits for delay first; requests of other connections go on meanwhile.
func ServeBroker(ctx context.Context, addr, dir string, partitions int, delay time.Duration, ready func()) error {
	cluster, err := embedded.NewKafka(embedded.KafkaConfig{Addr: addr, Dir: dir, Topics: map[string]int32{
		design.Topic: int32(partitions), event.RedeliveryTopic(consume.Group): 1,
	}})
	if err != nil {
		return err
	}
	defer cluster.Close()
	if delay > 0 {
		slow(cluster, delay)
	}
	ready()
	<-ctx.Done()
	return nil
}

func slow(cluster *kfake.Cluster, delay time.Duration) {
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		cluster.SleepControl(func() { time.Sleep(delay) })
		return nil, nil, false
	})
}

// broker is where a drain publishes.
type broker struct {
	addr   string
	client *kgo.Client
	from   kadm.ListedOffsets // where the topic ended before
	own    *process           // to be ended with the drain; nil for a broker that goes on
	known  *process           // whose CPU counts; nil for a broker from outside
	dir    string
}

func (s *Stage) broker(ctx context.Context, outside string, delay time.Duration) (_ *broker, err error) {
	b := &broker{addr: outside}
	if outside == "" {
		if err := s.ownBroker(ctx, b, delay); err != nil {
			return nil, err
		}
	} else if err := kafka.EnsureTopics(ctx, outside, design.Topic); err != nil {
		return nil, err
	}
	if b.known = b.own; outside != "" && outside == s.kafkaAddr {
		b.known = s.kafka
	}
	if b.client, err = kgo.NewClient(kgo.SeedBrokers(kafka.BrokerList(b.addr)...)); err != nil {
		b.close()
		return nil, err
	}
	b.from, err = b.ends(ctx)
	if err != nil {
		b.close()
	}
	return b, err
}

func (s *Stage) ownBroker(ctx context.Context, b *broker, delay time.Duration) error {
	port, err := embedded.FreePort()
	if err != nil {
		return err
	}
	s.n++
	b.dir = filepath.Join(s.Dir, fmt.Sprintf("broker_%d", s.n))
	b.addr = fmt.Sprintf("127.0.0.1:%d", port)
	b.own, err = s.process(ctx, "broker", "-addr", b.addr, "-dir", b.dir, "-delay", delay.String())
	return err
}

func (b *broker) cpu() time.Duration {
	if b.known == nil {
		return 0
	}
	return cpu(b.known.pid())
}

func (b *broker) close() {
	if b.client != nil {
		b.client.Close()
	}
	if b.own != nil {
		b.own.kill()
		_ = os.RemoveAll(b.dir) // Stage.Close removes what is left
	}
}

func (b *broker) ends(ctx context.Context) (kadm.ListedOffsets, error) {
	ends, err := kadm.NewClient(b.client).ListEndOffsets(ctx, design.Topic)
	if err := errors.Join(err, ends.Error()); err != nil {
		return nil, fmt.Errorf("asking where the topic ends: %w", err)
	}
	return ends, nil
}

// count is how many records have arrived.
func (b *broker) count(ctx context.Context) (n int, err error) {
	ends, err := b.ends(ctx)
	if err != nil {
		return 0, err
	}
	ends.Each(func(o kadm.ListedOffset) {
		from, _ := b.from.Lookup(o.Topic, o.Partition)
		n += int(o.Offset - from.Offset)
	})
	return n, nil
}
