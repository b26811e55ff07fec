package embedded

import (
	"fmt"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestRecordsTopicsAndOffsetsSurviveKill9OfTheBroker(t *testing.T) {
	t.Parallel()
	port, err := FreePort()
	require.NoError(t, err)
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	role := "kafka " + addr + " " + t.TempDir()
	broker := startChild(t, role)

	producer, err := sarama.NewSyncProducerFromClient(client(t, addr))
	require.NoError(t, err)
	produce(t, producer, 0, 200)
	commit(t, addr, 7)
	kill(t, broker)
	broker = startChild(t, role)
	produce(t, producer, 200, 300) // the same idempotent producer goes on
	kill(t, broker)
	startChild(t, role)
	require.NoError(t, producer.Close())

	require.Len(t, read(t, addr), 300, "records that were acknowledged")
	require.EqualValues(t, 7, committed(t, addr))
	client := client(t, addr)
	partitions, err := client.Partitions("letters")
	require.NoError(t, err)
	require.Len(t, partitions, 3)
}

func TestATopicIsNotMadeByUsingIt(t *testing.T) {
	t.Parallel()
	port, err := FreePort()
	require.NoError(t, err)
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	cluster, err := NewKafka(KafkaConfig{Addr: addr, Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	_, err = client(t, addr).Partitions("mistyped") // this client asks for the topic to be made
	require.ErrorIs(t, err, sarama.ErrUnknownTopicOrPartition)
}

func client(t *testing.T, addr string) sarama.Client {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V3_6_0_0
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Idempotent = true
	cfg.Net.MaxOpenRequests = 1
	cfg.Producer.Return.Successes = true
	cfg.Consumer.Return.Errors = true
	cfg.Metadata.Retry.Max = 1
	c, err := sarama.NewClient([]string{addr}, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() }) // its broker may be dead
	return c
}

// produce sends the numbers from..to-1, each its own key, and returns when all are acknowledged.
func produce(t *testing.T, producer sarama.SyncProducer, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		text := sarama.StringEncoder(fmt.Sprint(i))
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: "letters", Key: text, Value: text})
		require.NoError(t, err)
	}
}

// read returns the values of all records, each once.
func read(t *testing.T, addr string) map[string]bool {
	t.Helper()
	c := client(t, addr)
	consumer, err := sarama.NewConsumerFromClient(c)
	require.NoError(t, err)
	values := map[string]bool{}
	for partition := range int32(3) {
		end, err := c.GetOffset("letters", partition, sarama.OffsetNewest)
		require.NoError(t, err)
		p, err := consumer.ConsumePartition("letters", partition, sarama.OffsetOldest)
		require.NoError(t, err)
		for offset := range end {
			m := <-p.Messages()
			require.Equal(t, offset, m.Offset)
			require.False(t, values[string(m.Value)], "record %s is there twice", m.Value)
			values[string(m.Value)] = true
		}
		require.NoError(t, p.Close())
	}
	return values
}

func admin(t *testing.T, addr string) *kadm.Client {
	t.Helper()
	c, err := kadm.NewOptClient(kgo.SeedBrokers(addr))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// commit commits an offset of partition 1 for the group "readers".
func commit(t *testing.T, addr string, offset int64) {
	t.Helper()
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "letters", Partition: 1, At: offset})
	require.NoError(t, admin(t, addr).CommitAllOffsets(t.Context(), "readers", offsets))
}

func committed(t *testing.T, addr string) int64 {
	t.Helper()
	offsets, err := admin(t, addr).FetchOffsets(t.Context(), "readers")
	require.NoError(t, err)
	offset, _ := offsets.Lookup("letters", 1)
	return offset.At
}
