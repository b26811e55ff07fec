package batch_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/telemetry/spantest"
)

func TestEachEventOfABatchHasItsSpanOrIsLinkedToOne(t *testing.T) {
	t.Parallel()
	for name := range handlers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			receiver := spantest.Receive(t)
			w.traces = receiver.URL
			events := ofOrders(10, 10)
			for i := range events {
				events[i].TraceParent = fmt.Sprintf("00-0af7651916cd43dd8448eb21%08x-b7ad6b7169203331-01", i)
			}
			w.send(events...)
			task := w.run(handlers[name], nil)
			w.drained()
			require.NoError(t, task.Stop()) // it sends what is left

			found, shared := map[string]bool{}, 0
			for _, s := range receiver.Spans() {
				switch s.Name {
				case "consume PaymentSucceeded":
					require.Equal(t, "b7ad6b7169203331", s.Parent, "the span that sent it")
					found[s.Trace] = true
				case "consume batch":
					require.Equal(t, "consumer", s.Kind)
					require.Empty(t, s.Parent)
					require.Contains(t, s.Attributes["messaging.batch.message_count"], fmt.Sprint(len(s.Links)))
					shared++
					for _, trace := range s.Links {
						found[trace] = true
					}
				}
			}
			require.Len(t, found, 100)
			require.Equal(t, name == "all", shared > 0)
		})
	}
}
