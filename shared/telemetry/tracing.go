package telemetry

import (
	"context"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Tracer sends spans to endpoint by OTLP over HTTP; an empty endpoint gives a provider that does nothing. Call the
// returned function at shutdown to send what is left.
func Tracer(ctx context.Context, service, endpoint string) (trace.TracerProvider, func(context.Context) error, error) {
	if endpoint == "" {
		return noop.NewTracerProvider(), func(context.Context) error { return nil }, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(strings.TrimRight(endpoint, "/")+"/v1/traces"))
	if err != nil {
		return nil, nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
	}
	limits := sdktrace.NewSpanLimits()
	limits.LinkCountLimit = -1 // a batch links to the trace of each of its messages, which may be more than the usual 128
	tp := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(discreet{exporter}),
		sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithResource(resource.NewSchemaless(semconv.ServiceName(service))))
	return tp, tp.Shutdown, nil
}

// Off reports whether tp records nothing, so that there is no need to call it.
func Off(tp trace.TracerProvider) bool {
	_, off := tp.(noop.TracerProvider)
	return tp == nil || off
}

// TraceParent is the W3C traceparent of ctx, to be stored beside an event; "" without a trace.
func TraceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier.Get("traceparent")
}

// WithTraceParent puts a stored traceparent back into ctx as the remote parent of what follows.
func WithTraceParent(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}
