package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/telemetry/spantest"
)

func TestOneTraceLeadsFromTheCallbackToEveryEffect(t *testing.T) {
	t.Parallel()
	traces := spantest.Receive(t)
	s := upWith(t, []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + traces.URL, "OTEL_BSP_SCHEDULE_DELAY=100",
		// Nothing dies here, and what a slow machine takes for dead would have more spans.
		"OUTBOX_LEASE=5m", "OUTBOX_SEND_DEADLINE=2m", "OUTBOX_SETTLE_MARGIN=30s", "KAFKA_SESSION_TIMEOUT=30s", "SMS_TIMEOUT=1m", "SMS_LEASE=5m",
	}, t.TempDir())
	o, _ := s.paidBy("traced-user", nil)
	s.requireOneOfEach(o, "traced-user")

	// Each line is a span: the process and the name of its parents and its own.
	want := []string{
		"payment POST /callbacks/payment",
		"payment POST /callbacks/payment > relay send PaymentSucceeded",
		"payment POST /callbacks/payment > relay send PaymentSucceeded > points consume PaymentSucceeded",
		"payment POST /callbacks/payment > relay send PaymentSucceeded > search consume PaymentSucceeded",
		"payment POST /callbacks/payment > relay send PaymentSucceeded > search consume PaymentSucceeded > search PUT _doc",
		"payment POST /callbacks/payment > relay send PaymentSucceeded > notify consume PaymentSucceeded",
		"payment POST /callbacks/payment > relay send PaymentSucceeded > notify consume PaymentSucceeded > sender send notification",
		"payment POST /callbacks/payment > relay send PaymentSucceeded > notify consume PaymentSucceeded > sender send notification > sender GET /ops/orders/{no}/contact",
		"payment POST /callbacks/payment > relay send PaymentSucceeded > notify consume PaymentSucceeded > sender send notification > sender POST /sms",
		"payment POST /callbacks/payment > relay send PaymentSucceeded > notify consume PaymentSucceeded > sender send notification > sender POST /sms > world POST /sms",
	}
	var trace string
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		callbacks := traces.Under(spantest.Span{}, "payment", "POST /callbacks/payment")
		if assert.Len(c, callbacks, 1) {
			trace = callbacks[0].Trace
			// A delivery may be repeated, and then its span is there twice.
			got := paths(traces.Spans(), trace)
			slices.Sort(got)
			assert.ElementsMatch(c, want, slices.Compact(got))
		}
	}, patience, 100*time.Millisecond)

	rows, err := s.Paid(t.Context(), o.OrderNo)
	require.NoError(t, err)
	for _, span := range traces.Spans() {
		for _, secret := range []string{o.OrderNo, rows[0].EventID, "traced-user", customer("").Phone} {
			require.NotContains(t, fmt.Sprint(span), secret, "in a span of %s", span.Service)
		}
	}
	for process, message := range map[string]string{"payment": "callback settled", "sender": "command carried out"} {
		require.Eventually(t, func() bool {
			text, err := os.ReadFile(filepath.Join(s.dir, "log", process+".log"))
			require.NoError(t, err)
			return slices.ContainsFunc(slices.Collect(strings.Lines(string(text))), func(line string) bool {
				return strings.Contains(line, message) && strings.Contains(line, `"trace_id":"`+trace+`"`)
			})
		}, patience, 100*time.Millisecond, "%s logs %q with the trace's id", process, message)
	}
}

// paths are the spans of a trace with their parents in front. Statements of a database are left out: how many there are
// is not the point here.
func paths(spans []spantest.Span, trace string) (all []string) {
	byID := map[string]spantest.Span{}
	for _, s := range spans {
		if s.Trace == trace && s.Attributes["db.system.name"] == "" {
			byID[s.ID] = s
		}
	}
	for s := range maps.Values(byID) {
		path := s.Service + " " + s.Name
		for parent := s.Parent; parent != ""; parent = byID[parent].Parent {
			path = byID[parent].Service + " " + byID[parent].Name + " > " + path
		}
		all = append(all, path)
	}
	return all
}
