package notify

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestMetricsAreWellNamedAndStartAtZero(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	m := newMetrics(reg)
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, 5, testutil.CollectAndCount(m.attempts))
	require.Equal(t, 5, testutil.CollectAndCount(m.unsent))

	m.show([]unsent{{Retry, 3, 60}, {Failed, 1, 3600}})
	require.Equal(t, 60.0, testutil.ToFloat64(m.oldest), "what has FAILED waits for a person, not for the sender")
	m.show(nil)
	require.Zero(t, testutil.ToFloat64(m.unsent.WithLabelValues("RETRY")))
}
