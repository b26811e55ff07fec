package testkit

import (
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/paycast/shared/embedded"
	"example.com/paycast/shared/event"
)

// Broker is a Kafka broker of one test, in this process, whose data outlives its restarts.
type Broker struct {
	t   testing.TB
	cfg embedded.KafkaConfig

	mu      sync.Mutex
	cluster *kfake.Cluster // nil while killed
	gate    gate
}

// Kafka starts a broker for the test with the given topics: "name" has event.Partitions partitions, "name:3" has 3.
// Topics are not made by using them.
func Kafka(t testing.TB, topics ...string) *Broker {
	t.Helper()
	b := &Broker{t: t, cfg: embedded.KafkaConfig{Addr: FreeAddr(t), Dir: dir(t), Topics: map[string]int32{}}}
	for _, topic := range topics {
		name, count, given := strings.Cut(topic, ":")
		partitions := event.Partitions
		if given {
			var err error
			if partitions, err = strconv.Atoi(count); err != nil {
				t.Fatalf("topic %q: %v", topic, err)
			}
		}
		b.cfg.Topics[name] = int32(partitions)
	}
	t.Cleanup(b.Kill)
	b.Restart()
	return b
}

// Brokers is the broker's address, host:port. It stays the same over restarts.
func (b *Broker) Brokers() string { return b.cfg.Addr }

// Cluster is the broker itself, for what has no method here. It is another one after a restart.
func (b *Broker) Cluster() *kfake.Cluster {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cluster == nil {
		b.t.Fatalf("the broker on %s is killed", b.cfg.Addr)
	}
	return b.cluster
}

// Kill ends the broker: connections break and new ones are refused, until Restart. A paused one dies as well, without
// having read what was sent to it meanwhile.
func (b *Broker) Kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cluster != nil {
		b.cluster.Close()
		awaitRefusal(b.t, b.cfg.Addr)
		b.cluster = nil
	}
	b.gate.open()
}

// Restart starts the broker again, on its address and with its topics, records and committed offsets.
func (b *Broker) Restart() {
	b.t.Helper()
	b.Kill()
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	b.cluster, err = embedded.NewKafka(b.cfg, kfake.ListenFn(b.gate.listen),
		kfake.SleepOutOfOrder()) // a delayed answer to one client holds up no other
	if err != nil {
		b.t.Fatal(err)
	}
}

// Pause lets the broker answer nobody, as if its process were stopped: connections stand and new ones are accepted.
func (b *Broker) Pause() { b.gate.shut() }

// Resume ends Pause. What clients sent meanwhile is then read.
func (b *Broker) Resume() { b.gate.open() }

// FailProduce lets the next n produce requests for the topic fail with err; n = -1 means all, until remove is called.
// The records are not stored, except with kerr.RequestTimedOut and kerr.NotEnoughReplicasAfterAppend: as with a real
// broker, those are stored and refused all the same.
func (b *Broker) FailProduce(topic string, n int, err *kerr.Error) (remove func()) {
	return b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Count: n, Err: err}).Remove
}

// DelayProduce lets each produce request wait for d before the broker looks at it, until Restart.
func (b *Broker) DelayProduce(d time.Duration) {
	c := b.Cluster()
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		c.SleepControl(func() { time.Sleep(d) })
		return nil, nil, false
	})
}

// LoseProduceAnswers lets the broker store what it is sent and then break the connection in place of an answer, for the
// next n produce requests. The sender cannot know whether its records are there.
func (b *Broker) LoseProduceAnswers(n int) { b.gate.lose.Store(int64(n)) }

// FreeAddr returns an address of this machine, 127.0.0.1:port, that nobody listens on.
func FreeAddr(t testing.TB) string {
	t.Helper()
	port, err := embedded.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
