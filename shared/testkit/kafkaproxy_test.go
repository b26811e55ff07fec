package testkit

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestAKafkaClientStaysBehindItsProxyAndTheOthersDoNotNotice(t *testing.T) {
	t.Parallel()
	b := Kafka(t, "orders:1")
	link := KafkaProxy(t, b.Brokers())
	behind, beside := open(t, link.Addr()), open(t, b.Brokers())
	ask := func(client *kgo.Client, within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return client.Ping(ctx)
	}
	require.NoError(t, behind.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("1")}).FirstErr())
	require.Len(t, ReadTopic(t, b.Brokers(), "orders"), 1)

	link.Swallow()
	require.Error(t, ask(behind, 300*time.Millisecond))
	require.NoError(t, ask(beside, soon))
	link.Heal()
	Eventually(t, soon, func() error { return ask(behind, soon) }) // the broken connections are found first

	link.Cut()
	require.Error(t, ask(behind, 300*time.Millisecond))
	require.NoError(t, ask(beside, soon))
	link.Restore()
	Eventually(t, soon, func() error { return ask(behind, soon) }) // the broken connections are found first
}
