package telemetry

import (
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Handler gives each request a span, named after its method and the route in Request.Pattern: ServeMux sets it, and
// package echoroute does for echo. With a tp that is off it returns h itself.
func Handler(tp trace.TracerProvider, h http.Handler) http.Handler {
	if Off(tp) {
		return h
	}
	return otelhttp.NewHandler(h, "", otelhttp.WithTracerProvider(tp), otelhttp.WithPropagators(propagation.TraceContext{}))
}

// Transport gives each request that is part of a trace a span, named after its method and route, and passes the trace on
// to the server. Requests outside a trace, such as health checks, begin none. With a tp that is off it returns base itself.
func Transport(tp trace.TracerProvider, base http.RoundTripper, route func(*http.Request) string) http.RoundTripper {
	if Off(tp) {
		return base
	}
	return otelhttp.NewTransport(base, otelhttp.WithTracerProvider(tp), otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return r.Method + " " + route(r) }),
		otelhttp.WithFilter(func(r *http.Request) bool { return trace.SpanFromContext(r.Context()).IsRecording() }))
}
