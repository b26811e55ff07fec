package outbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/testkit"
)

// killed lets relays work on a backlog that keeps growing and kills one after the other with SIGKILL, whatever it is doing.
func (s *stage) killed(every time.Duration, kills int) {
	s.t.Helper()
	s.kafka.DelayProduce(20 * time.Millisecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	const rows, keys = 400, 40
	for i := range kills {
		s.fill(fmt.Sprintf("K%d", i), rows, keys)
		relay := s.process("")
		<-tick.C
		relay.Kill()
		s.afterDeath()
		require.Zero(s.t, s.count("status = 'DEAD'"), "a relay's death is not its rows' fault")
	}
	s.process("")
	testkit.Eventually(s.t, 2*faultPatience, func() error {
		if n := s.count("status <> 'SENT'"); n > 0 {
			return fmt.Errorf("%d of %d rows are not sent", n, rows*kills)
		}
		return nil
	})
	s.t.Logf("%d rows, %d in the hands of relays that were killed", rows*kills, s.count("takeover_count > 0"))
	s.requireOrdered(rows * kills)
	s.requireSameCopies()
	s.requireTrue()
}

func TestRelayKilledEveryTwoSecondsParksNothingAndDeliversAll(t *testing.T) {
	t.Parallel()
	setup(t).killed(2*time.Second, 7)
}

// TestDeathsForOtherReasonsParkNoRow: whoever kills a relay that works through suspects, one at a time, always meets one.
func TestDeathsForOtherReasonsParkNoRow(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 30, 30)
	s.exec("update t_outbox_event set alone = true, takeover_count = 3, status = 'RETRY', last_error_code = 'lease_expired'")
	r := s.relay()
	for range 6 { // each of these relays dies with the suspect that is due first
		rows, _, err := r.claimAndRead(t.Context(), r.c.rule().Begin("dying"), &lane{destination: event.Topic, alone: true}, 1)
		require.NoError(t, err)
		require.Len(t, rows, 1)
	}
	s.leasesRunOut()
	require.NoError(t, r.takeOver(t.Context()))
	require.Zero(t, s.count("status = 'DEAD'"), "one death alone is no proof")
	require.Equal(t, 6, s.count("takeover_count = 4 and alone"))

	// An answer is a proof of the contrary, even one that says nothing about the row.
	s.exec("update t_outbox_event set next_retry_at = now() where takeover_count = 4")
	s.exec("update t_outbox_event set next_retry_at = now() + interval '1 hour' where takeover_count = 3")
	hold := r.c.rule().Begin("living")
	rows, _, err := r.claimAndRead(t.Context(), hold, &lane{destination: event.Topic, alone: true}, 6)
	require.NoError(t, err)
	require.Len(t, rows, 6)
	unknown, given := rows[0], rows[1]
	_, err = r.settle(t.Context(), hold.Token, []outcome{
		{unknown, answer{result: resultUnknown, code: codeDeadline}}, {given, answer{result: resultNotSent}},
	}, false)
	require.NoError(t, err)
	require.Equal(t, 1, s.count("event_id = $1 and takeover_count = 0 and alone", unknown.eventID))
	require.Equal(t, 1, s.count("event_id = $1 and takeover_count = 4", given.eventID), "what was not sent has proved nothing")
}

// TestRowIsNotClearedWhileItIsNotInHand: what ends a relay has not come to it yet, however long it has had the claim.
func TestRowIsNotClearedWhileItIsNotInHand(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 1, 1)
	s.exec("update t_outbox_event set alone = true, takeover_count = 5, status = 'RETRY', last_error_code = 'lease_expired'")
	r := s.relay()
	p := s.pause(r, "ctid = any")
	testkit.Run(t, "relay", r.Run)
	t.Cleanup(p.goOn)
	<-p.reached
	s.eventually(1, "status = 'SENDING' and updated_at < clock_timestamp() - interval '2 seconds'") // its second is over
	require.Equal(t, 1, s.count("takeover_count = 5"))
	p.goOn()
	s.eventually(1, "status = 'SENT'")
}

// TestRowIsClearedByARelayThatLivesOnWithIt: Kafka hangs, and the relay with the row in its hands does not die of it.
func TestRowIsClearedByARelayThatLivesOnWithIt(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 1, 1)
	s.exec("update t_outbox_event set alone = true, takeover_count = 5, status = 'RETRY', last_error_code = 'lease_expired'")
	s.kafka.Pause()
	s.run(func(c *Config) { c.Lease, c.Deadline, c.Margin = 90*time.Second, 60*time.Second, 10*time.Second })
	testkit.Eventually(t, faultPatience, func() error {
		if s.count("status = 'SENDING' and takeover_count = 0 and retry_count = 0") == 0 {
			return fmt.Errorf("it is still suspected")
		}
		return nil
	})
	s.kafka.Resume()
	testkit.Eventually(t, faultPatience, func() error {
		if s.count("status = 'SENT'") == 0 {
			return fmt.Errorf("it is not sent")
		}
		return nil
	})
}
