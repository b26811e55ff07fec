package outbox

import (
	"fmt"
	"testing"

	"example.com/paycast/shared/testkit"
)

// TestSecondRowThatIsDueBeforeItsFirstDoesNotBlockTheRelay: after an outage the first events of many keys have been
// tried and moved back, while later events of theirs, never tried, stand at the front of the window.
func TestSecondRowThatIsDueBeforeItsFirstDoesNotBlockTheRelay(t *testing.T) {
	t.Parallel()
	for _, window := range []int{1, 7, 500} {
		t.Run(fmt.Sprint("window ", window), func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			s.fill("A", 60, 30)
			s.exec(`update t_outbox_event set status = 'RETRY', last_error_code = 'out_of_brokers', next_retry_at = now() - interval '1 millisecond'
			        where aggregate_version = 1`)
			r := s.relay(func(c *Config) { c.Batch = window })
			r.gate.fail() // the broker was away a moment ago: one row at a time until one is accepted
			testkit.Run(t, "relay", r.Run)
			s.eventually(60, "status = 'SENT'")
			s.requireOrdered(60)
		})
	}
}
