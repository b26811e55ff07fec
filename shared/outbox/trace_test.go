package outbox

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/telemetry"
	"example.com/paycast/shared/telemetry/spantest"
	"example.com/paycast/shared/testkit"
)

func TestATraceIsReadFromAStoredRowAndOnlyItsHeaderChangesInARecord(t *testing.T) {
	t.Parallel()
	e := created("O-1", 1)
	stored, err := encodeHeaders(e.Headers())
	require.NoError(t, err)
	require.Equal(t, t.Context(), row{headers: stored}.context(t.Context()), "no trace, no other context")
	withIt := withTraceParent(decodeHeaders(stored), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	require.Equal(t, append(e.Headers(), event.Header{Key: "traceparent", Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")}), withIt)

	e.TraceParent = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traced, err := encodeHeaders(e.Headers())
	require.NoError(t, err)
	require.NotEqual(t, t.Context(), row{headers: traced}.context(t.Context()))
	require.Equal(t, withIt, withTraceParent(decodeHeaders(traced), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
}

func TestASendHangsUnderTheTraceOfItsCommitAndTheRecordNamesTheSend(t *testing.T) {
	t.Parallel()
	s := setup(t)
	receiver := spantest.Receive(t)
	tp, flush, err := telemetry.Tracer(t.Context(), "relay", receiver.URL)
	require.NoError(t, err)
	e, untraced := created("O-1", 1), created("O-2", 1)
	e.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	s.append(e, untraced)
	var lines testkit.Output // Watermill's router writes its last line when Run has already returned
	log, err := telemetry.Logger(&lines, "relay", "debug")
	require.NoError(t, err)
	task := s.run(func(c *Config) { c.Tracer, c.Log = tp, log })
	s.eventually(2, "status = 'SENT'")
	require.NoError(t, task.Stop())
	require.NoError(t, flush(context.Background()))

	commit := spantest.Span{Trace: "0af7651916cd43dd8448eb211c80319c", ID: "b7ad6b7169203331"}
	sends := receiver.Under(commit, "relay", "send OrderCreated")
	require.Len(t, sends, 1)
	require.Equal(t, map[string]string{"event_type": "OrderCreated", "destination": event.Topic, "result": "accepted"}, sends[0].Attributes)
	require.Equal(t, "producer", sends[0].Kind)
	require.Len(t, receiver.Spans(), 2, "the relay's polling makes no spans; an event without a trace begins one")
	for _, r := range testkit.ReadTopic(t, s.kafka.Brokers(), event.Topic) {
		if string(r.Key) == "O-1" {
			require.Equal(t, "00-"+sends[0].Trace+"-"+sends[0].ID+"-01", header(r, "traceparent"))
		}
	}
	require.Equal(t, 1, s.count(`headers like '%b7ad6b7169203331%'`), "the stored row is left alone")
	require.Contains(t, lines.String(), `"trace_id":"0af7651916cd43dd8448eb211c80319c"`)
}

func TestWithoutATracerTheStoredTraceGoesOutAsItIs(t *testing.T) {
	t.Parallel()
	s := setup(t)
	e := created("O-1", 1)
	e.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	s.append(e)
	s.run()
	s.eventually(1, "status = 'SENT'")
	records := testkit.ReadTopic(t, s.kafka.Brokers(), event.Topic)
	require.Len(t, records, 1)
	require.Equal(t, e.Headers(), records[0].Headers)
}
