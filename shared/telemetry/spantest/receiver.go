// Package spantest is a tracing backend for tests: it receives what a process sends by OTLP over HTTP, and shows it as
// trees.
package spantest

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is one span as it was sent.
type Span struct {
	Service           string // of the process
	Name              string
	Kind              string   // server, client, producer, consumer or internal
	Trace, ID, Parent string   // hexadecimal; Parent is "" for the first of a trace
	Links             []string // the traces that it points to
	Attributes        map[string]string
	Failed            bool
	Texts             []string // everything else that is text: status, events
}

// Receiver keeps the spans that came.
type Receiver struct {
	URL string // for OTEL_EXPORTER_OTLP_ENDPOINT

	mu    sync.Mutex
	spans []Span
}

// Receive starts a receiver for the time of the test.
func Receive(t testing.TB) *Receiver {
	t.Helper()
	r := &Receiver{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		// An ExportTraceServiceRequest has the same form as the TracesData that files hold, and that one comes without gRPC.
		var sent otlp.TracesData
		if err == nil {
			err = proto.Unmarshal(body, &sent)
		}
		if err != nil || q.URL.Path != "/v1/traces" {
			t.Errorf("spans came to %s that cannot be read: %v", q.URL.Path, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.keep(&sent)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

func (r *Receiver) keep(sent *otlp.TracesData) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, process := range sent.GetResourceSpans() {
		service := text(process.GetResource().GetAttributes())["service.name"]
		for _, scope := range process.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.spans = append(r.spans, spanOf(service, s))
			}
		}
	}
}

func spanOf(service string, s *otlp.Span) Span {
	span := Span{
		Service: service, Name: s.GetName(), Kind: strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "SPAN_KIND_")),
		Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Attributes: text(s.GetAttributes()), Failed: s.GetStatus().GetCode() == otlp.Status_STATUS_CODE_ERROR,
	}
	if m := s.GetStatus().GetMessage(); m != "" {
		span.Texts = append(span.Texts, m)
	}
	for _, l := range s.GetLinks() {
		span.Links = append(span.Links, hex.EncodeToString(l.GetTraceId()))
	}
	for _, e := range s.GetEvents() {
		span.Texts = append(span.Texts, e.String())
	}
	return span
}

func text(attributes []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range attributes {
		if all[a.GetKey()] = a.GetValue().GetStringValue(); all[a.GetKey()] == "" {
			all[a.GetKey()] = a.GetValue().String()
		}
	}
	return all
}

// Spans are those that have come so far.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// Under are the spans of the process service with that name whose parent is parent; a zero parent asks for the first
// spans of traces.
func (r *Receiver) Under(parent Span, service, name string) (all []Span) {
	for _, s := range r.Spans() {
		if s.Service == service && s.Name == name && s.Parent == parent.ID && (parent.ID == "" || s.Trace == parent.Trace) {
			all = append(all, s)
		}
	}
	return all
}
