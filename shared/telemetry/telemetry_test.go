package telemetry_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/telemetry"
)

func TestALogLineCarriesTheTraceOfItsContext(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := telemetry.Logger(&out, "points", "info")
	require.NoError(t, err)
	ctx := telemetry.WithTraceParent(t.Context(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	log.With("group", "points").InfoContext(ctx, "credited", "event_id", "e1")
	log.DebugContext(ctx, "not shown at this level")
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", line["trace_id"])
	require.Equal(t, "points", line["service"])
	require.Equal(t, "points", line["group"])
}

func TestALevelThatDoesNotExistIsRefused(t *testing.T) {
	t.Parallel()
	_, err := telemetry.Logger(&bytes.Buffer{}, "points", "loud")
	require.ErrorContains(t, err, "LOG_LEVEL")
}

func TestATraceParentComesBackAsItWasStored(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	require.Equal(t, parent, telemetry.TraceParent(telemetry.WithTraceParent(t.Context(), parent)))
	require.Empty(t, telemetry.TraceParent(t.Context()))
	require.Empty(t, telemetry.TraceParent(telemetry.WithTraceParent(t.Context(), "nonsense")))
}

func TestTheRegistryTellsAboutTheProcess(t *testing.T) {
	t.Parallel()
	n, err := testutil.GatherAndCount(telemetry.Registry(), "go_goroutines")
	require.NoError(t, err)
	require.Equal(t, 1, n)
}
