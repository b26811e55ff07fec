package testkit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
)

func TestKafkaKeepsRecordsOverARestart(t *testing.T) {
	t.Parallel()
	b := Kafka(t, "letters:3", "order-events")
	sent := []event.Record{
		{Key: []byte("a"), Value: []byte("1"), Headers: []event.Header{{Key: "h", Value: []byte("x")}, {Key: "h", Value: nil}}},
		{Key: []byte("b"), Value: nil},
		{Key: []byte("a"), Value: []byte("2")},
	}
	Produce(t, b.Brokers(), "letters", sent...)

	b.Restart()

	got := ReadTopic(t, b.Brokers(), "letters")
	require.Len(t, got, 3)
	byKey := map[string][]event.Record{}
	for _, r := range got {
		byKey[string(r.Key)] = append(byKey[string(r.Key)], r)
	}
	require.Equal(t, "1", string(byKey["a"][0].Value))
	require.Equal(t, sent[0].Headers, byKey["a"][0].Headers)
	require.Equal(t, "2", string(byKey["a"][1].Value))
	require.Nil(t, byKey["b"][0].Value)
	require.Len(t, b.Cluster().PartitionInfos("order-events"), event.Partitions)
}
