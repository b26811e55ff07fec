package outbox

import (
	"fmt"
	"testing"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/testkit"
)

func (s *stage) state(destination string) (state string) {
	s.t.Helper()
	require.NoError(s.t, s.sql.QueryRow(s.t.Context(),
		"select coalesce((select state || ' ' || coalesce(cause, '') from t_outbox_destination where destination = $1), 'OPEN')", destination).Scan(&state))
	return state
}

func (s *stage) eventuallyState(destination, want string) {
	s.t.Helper()
	testkit.Eventually(s.t, soon, func() error {
		if got := s.state(destination); got != want {
			return fmt.Errorf("%s is %q, want %q", destination, got, want)
		}
		return nil
	})
}

func (s *stage) eventuallyLogged(message string) {
	s.t.Helper()
	testkit.Eventually(s.t, soon, func() error {
		if len(s.logs.Find(message)) == 0 {
			return fmt.Errorf("%q has not been logged", message)
		}
		return nil
	})
}

func TestMissingTopicPausesItsDestinationAloneUntilItExists(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const late = "order-events.redeliver.late"
	s.fill("L", 200, 200)
	s.exec("update t_outbox_event set destination = $1", late)
	s.fill("G", 200, 200)
	reg := prometheus.NewRegistry()
	r := s.relay(func(c *Config) { c.Metrics = reg })
	testkit.Run(t, "relay", r.Run)
	s.eventually(200, "status = 'SENT'")
	s.eventuallyState(late, "PAUSED kafka_3")
	require.Equal(t, 200, s.count("destination = $1 and retry_count = 0 and last_error_code is null", late), "its rows are untouched")
	require.NoError(t, r.read(t.Context()))
	require.InDelta(t, 1, testutil.ToFloat64(r.m.paused.WithLabelValues(late)), 0)
	s.eventuallyLogged("a destination refuses events; it is paused and will be probed")

	require.NoError(t, kafka.EnsureTopics(t.Context(), s.kafka.Brokers(), late))
	s.eventually(400, "status = 'SENT'")
	s.eventuallyState(late, "OPEN ")
	require.Zero(t, s.count("retry_count > 0 or status = 'DEAD'"))
	s.eventuallyLogged("a destination accepts events again")
}

func TestProbeOfAPausedDestinationIsForOneRelayAndOneRow(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.exec("insert into t_outbox_destination (destination, state, cause, probe_at) values ($1, 'PAUSED', 'kafka_3', now())", event.Topic)
	for _, first := range []bool{true, false} {
		mine, err := s.relay().claimProbe(t.Context(), event.Topic)
		require.NoError(t, err)
		require.Equal(t, first, mine)
	}
	s.fill("A", 20, 20)
	s.exec("update t_outbox_destination set probe_at = now()")
	require.Equal(t, 1, s.triedInARound(s.relay()))
}

func TestRevokedRightsPauseAndLoseNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	grant := s.kafka.FailProduce(event.Topic, -1, kerr.TopicAuthorizationFailed)
	s.fill("A", 100, 10)
	s.run()
	s.eventuallyState(event.Topic, "PAUSED kafka_29")
	grant()
	s.eventually(100, "status = 'SENT'")
	s.requireOrdered(100)
}

func TestTopicRemovedAndMadeAgainCostsNoRow(t *testing.T) {
	t.Parallel()
	s := setup(t)
	r := s.relay()
	testkit.Run(t, "relay", r.Run)
	paused := func() float64 {
		require.NoError(t, r.read(t.Context()))
		return testutil.ToFloat64(r.m.paused.WithLabelValues(event.Topic))
	}
	s.fill("A", 100, 10)
	s.eventually(100, "status = 'SENT'")
	admin, err := sarama.NewClusterAdmin(kafka.BrokerList(s.kafka.Brokers()), sarama.NewConfig())
	require.NoError(t, err)
	defer func() { require.NoError(t, admin.Close()) }()
	require.NoError(t, admin.DeleteTopic(event.Topic))
	s.fill("B", 300, 30)
	s.eventuallyState(event.Topic, "PAUSED kafka_3")
	require.InDelta(t, 1, paused(), 0, "the alert")
	require.NoError(t, kafka.EnsureTopics(t.Context(), s.kafka.Brokers(), event.Topic))
	s.eventually(400, "status = 'SENT'")
	s.eventuallyState(event.Topic, "OPEN ")
	require.Zero(t, paused())
	s.requireOrdered(300)
	require.Zero(t, s.count("status = 'DEAD'"))
}
