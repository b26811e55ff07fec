package outbox

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/telemetry"
)

const traceParent = "traceparent"

// trace makes the send a span under the one in which the event was committed. The record then names the send as its
// parent, so that a consumer's work hangs under the very send that has reached it; the stored row stays as it is. The
// returned function ends the span. Without a tracer the headers go out byte for byte.
func (r *Relay) trace(ctx context.Context, row row, headers []event.Header) (context.Context, []event.Header, func(answer)) {
	if r.tracer == nil {
		return ctx, headers, func(answer) {}
	}
	ctx, span := r.tracer.Start(row.context(ctx), "send "+row.eventType, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(telemetry.EventType.String(row.eventType), telemetry.Destination.String(row.destination)))
	return ctx, withTraceParent(headers, telemetry.TraceParent(ctx)), func(a answer) {
		span.SetAttributes(telemetry.Result.String(string(a.result)))
		if a.result != resultAccepted {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

func withTraceParent(headers []event.Header, value string) []event.Header {
	for i, h := range headers {
		if h.Key == traceParent {
			headers[i].Value = []byte(value)
			return headers
		}
	}
	return append(headers, event.Header{Key: traceParent, Value: []byte(value)})
}

// context is ctx with the trace in which the row was committed, if there was one: for spans and for log lines.
func (r row) context(ctx context.Context) context.Context {
	_, rest, _ := strings.Cut(r.headers, "\n"+traceParent+": ")
	value, _, _ := strings.Cut(rest, "\n")
	return telemetry.WithTraceParent(ctx, value)
}
