package telemetry

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// kept are the attributes that leave the process. The libraries that make spans add more of their own: paths and queries
// with ids in them, addresses of clients. What is not named here is not sent, whatever an upgrade brings.
var kept = map[attribute.Key]bool{
	"http.request.method": true, "http.response.status_code": true, "server.address": true, "server.port": true, "error.type": true,
	// The text of a statement is a constant of ours; its parameters are no part of it.
	"db.system.name": true, "db.namespace": true, "db.operation.name": true, "db.query.text": true,
	"pgx.rows_affected": true, "pgx.sql_state": true,
	EventType: true, Destination: true, Group: true, Result: true, Messages: true,
}

// The attributes of our own spans. Each has few values; ids are in the log lines, which carry the trace's id.
const (
	EventType   = attribute.Key("event_type")
	Destination = attribute.Key("destination")
	Group       = attribute.Key("group")
	Result      = attribute.Key("result")
	Messages    = attribute.Key("messaging.batch.message_count") // OpenTelemetry's name, of spans for more than one message
)

// discreet sends spans without what may hold an id, a payload or somebody's data.
type discreet struct{ sdktrace.SpanExporter }

func (d discreet) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	out := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, span := range spans {
		out[i] = redacted{span}
	}
	return d.SpanExporter.ExportSpans(ctx, out)
}

type redacted struct{ sdktrace.ReadOnlySpan }

func (s redacted) Attributes() []attribute.KeyValue {
	return slices.DeleteFunc(slices.Clone(s.ReadOnlySpan.Attributes()), func(a attribute.KeyValue) bool { return !kept[a.Key] })
}

// Events are errors here, and an error's text may quote values. The log tells it, scrubbed.
func (s redacted) Events() []sdktrace.Event { return nil }

// Status keeps that something failed, without the text, for the same reason.
func (s redacted) Status() sdktrace.Status {
	return sdktrace.Status{Code: s.ReadOnlySpan.Status().Code}
}
