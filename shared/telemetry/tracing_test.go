package telemetry_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"example.com/paycast/shared/telemetry"
	"example.com/paycast/shared/telemetry/echoroute"
	"example.com/paycast/shared/telemetry/spantest"
)

func tracer(t *testing.T) (trace.TracerProvider, *spantest.Receiver, func()) {
	t.Helper()
	receiver := spantest.Receive(t)
	tp, flush, err := telemetry.Tracer(t.Context(), "points", receiver.URL+"/")
	require.NoError(t, err)
	return tp, receiver, func() { require.NoError(t, flush(context.Background())) }
}

func TestWithoutAnEndpointNothingIsRecordedAndNothingWrapped(t *testing.T) {
	t.Parallel()
	off, flush, err := telemetry.Tracer(t.Context(), "points", "")
	require.NoError(t, err)
	require.True(t, telemetry.Off(off))
	require.True(t, telemetry.Off(nil))
	ctx, span := off.Tracer("x").Start(t.Context(), "y")
	require.False(t, span.IsRecording())
	require.Empty(t, telemetry.TraceParent(ctx))
	require.NoError(t, flush(t.Context()))

	mux := http.NewServeMux()
	require.Same(t, mux, telemetry.Handler(off, mux))
	require.Same(t, http.DefaultTransport, telemetry.Transport(off, http.DefaultTransport, nil))
}

func TestSpansAreSentWithoutAnythingThatMayHoldAnID(t *testing.T) {
	t.Parallel()
	tp, receiver, flush := tracer(t)
	require.False(t, telemetry.Off(tp))
	_, span := tp.Tracer("x").Start(t.Context(), "y", trace.WithAttributes(
		telemetry.Group.String("points"), attribute.String("url.path", "/orders/O-1"), attribute.String("db.query.parameter.0", "+4512345678")))
	span.RecordError(errors.New("no order O-1"))
	span.SetStatus(codes.Error, "no order O-1")
	span.End()
	flush()
	all := receiver.Spans()
	require.Len(t, all, 1)
	require.Equal(t, "points", all[0].Service)
	require.Equal(t, map[string]string{"group": "points"}, all[0].Attributes)
	require.True(t, all[0].Failed)
	require.Empty(t, all[0].Texts)
}

func TestASpanPointsToTheTracesOfAllMessagesOfItsBatch(t *testing.T) {
	t.Parallel()
	tp, receiver, flush := tracer(t)
	var links []trace.Link
	for i := range 500 {
		links = append(links, trace.Link{SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{15: byte(i), 14: byte(i >> 8), 0: 1}, SpanID: trace.SpanID{1},
		})})
	}
	_, span := tp.Tracer("x").Start(t.Context(), "y", trace.WithLinks(links...))
	span.End()
	flush()
	all := receiver.Spans()
	require.Len(t, all, 1)
	require.Len(t, all[0].Links, 500)
}

func TestARequestIsNamedAfterItsRouteAndContinuesTheCallersTrace(t *testing.T) {
	t.Parallel()
	tp, receiver, flush := tracer(t)
	e := echo.New()
	e.Use(echoroute.Name)
	e.GET("/orders/:no", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
	mux := http.NewServeMux()
	mux.Handle("GET /runs/{id}", http.NotFoundHandler())
	servers := map[string]http.Handler{"/orders/O-1": e, "/runs/7": mux, "/elsewhere": e}
	ctx, caller := tp.Tracer("x").Start(t.Context(), "caller")
	for path, h := range servers {
		server := httptest.NewServer(telemetry.Handler(tp, h))
		client := http.Client{Transport: telemetry.Transport(tp, server.Client().Transport, func(*http.Request) string { return "there" })}
		for _, ctx := range []context.Context{ctx, t.Context()} { // the second is in no trace, like a health check
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
			require.NoError(t, err)
			resp, err := client.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		server.Close()
	}
	caller.End()
	flush()
	callers := receiver.Under(spantest.Span{}, "points", "caller")
	require.Len(t, callers, 1)
	calls := receiver.Under(callers[0], "points", "GET there")
	require.Len(t, calls, 3, "one call of each server belongs to the trace")
	names := map[string]int{}
	for _, call := range calls {
		for _, s := range receiver.Spans() {
			if s.Parent == call.ID {
				names[s.Name]++
			}
		}
	}
	require.Equal(t, map[string]int{"GET /orders/:no": 1, "GET /runs/{id}": 1, "GET": 1}, names)
	require.Len(t, receiver.Spans(), 1+3+3+3, "what is called outside a trace begins one at the server only")
}
