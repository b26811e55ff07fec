package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/settings"
	"example.com/paycast/shared/testkit"
)

func TestTopicsAreDescribedAsTheBrokerHasThem(t *testing.T) {
	t.Parallel()
	b := testkit.Kafka(t, "other:3")
	require.NoError(t, EnsureTopics(t.Context(), b.Brokers(), event.Topic))
	got, err := Seen(t.Context(), b.Brokers(), event.Topic, "other", "missing")
	require.NoError(t, err)
	byName := map[string]settings.Topic{}
	for _, topic := range got.Topics {
		byName[topic.Topic] = topic
	}
	require.Equal(t, settings.Topic{Topic: event.Topic, Partitions: event.Partitions, Cleanup: "delete", Retention: Retention}, byName[event.Topic])
	require.Equal(t, 3, byName["other"].Partitions)
	require.NotContains(t, byName, "missing")
}

func TestBrokersTellWhetherTheyMakeTopics(t *testing.T) {
	t.Parallel()
	got, err := Seen(t.Context(), testkit.Kafka(t).Brokers(), event.Topic)
	require.NoError(t, err)
	require.Len(t, got.Brokers, 1)
	for _, one := range got.Brokers {
		require.Equal(t, "false", one)
	}
	_, err = Seen(t.Context(), "127.0.0.1:1", event.Topic)
	require.Error(t, err)
}

func TestClientsReportWhatTheGuaranteesNeed(t *testing.T) {
	t.Parallel()
	p, err := NewPublisher(PublisherConfig{Brokers: "127.0.0.1:1"})
	require.NoError(t, err)
	var r settings.Report
	require.NoError(t, p.Settings(t.Context(), &r))
	require.Equal(t, []settings.Producer{{Acks: "all", Idempotent: true, OpenRequests: 1}}, r.Producers)
	g := GroupSettings("g", 3*time.Second, event.Topic)
	require.Equal(t, "oldest", g.Initial)
	require.False(t, g.Reset)
	require.False(t, g.MakesTopics)
	require.Equal(t, settings.Duration(3*time.Second), g.Session)
}
