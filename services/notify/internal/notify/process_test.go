package notify_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/deploy/world/sms"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

// These tests end and stop real processes.

func TestSenderKilledBetweenAcceptanceAndMarkSendsOnce(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.mode(sms.Mode{Mode: sms.ModeAcceptThenHang})
	victim := s.child(service.Env{"SMS_TIMEOUT": "2m"})
	id := s.insert(1)[0]
	require.Eventually(t, func() bool { return len(s.provider.Messages()) == 1 }, soon, time.Millisecond)
	victim.Kill()
	require.Equal(t, row{Status: "SENDING", Attempts: 1}, s.row(id), "killed with the command in its hand")
	s.mode(sms.Mode{Mode: sms.ModeOK})

	p := s.sender(nil)
	s.leaseRunsOut()
	require.Equal(t, row{"SENT", 2, 1, ""}, s.await(id, "SENT"))
	require.Equal(t, float64(1), p.metric(t, "notify_lease_expired_total"))
	require.Len(t, s.sent(), 1, "the successor asked")
	s.oneMessageEach(id)
}

// Killed while it asks for the phone number, it has not spoken to the provider; nobody else can know that.
func TestSenderKilledBeforeItAskedTheProviderSendsOnce(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.setContact(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	id := s.insert(1)[0]
	for s.row(id).Status != "SENDING" { // again, if it has given up asking just before its death
		victim := s.child(nil)
		s.await(id, "SENDING")
		victim.Kill()
	}
	require.Empty(t, s.sent())
	s.setContact(nil)

	s.sender(nil)
	s.leaseRunsOut()
	require.Equal(t, 1, s.await(id, "SENT").Takeovers)
	require.Len(t, s.sent(), 1)
	s.oneMessageEach(id)
}

// A process that stands still cannot know that time has passed. It wakes up with a command that is no longer its own.
func TestSenderThatWakesUpAfterItsLeaseChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.mode(sms.Mode{Mode: sms.ModeAcceptThenHang})
	sleeper := s.child(service.Env{"SMS_TIMEOUT": "10s"}) // within which it is put to sleep
	id := s.insert(1)[0]
	require.Eventually(t, func() bool { return len(s.provider.Messages()) == 1 }, soon, time.Millisecond)
	sleeper.Pause()

	p := s.sender(nil)
	s.leaseRunsOut()
	s.await(id, "SENT")
	p.stop()
	before := s.dump()
	sleeper.Resume()
	require.Eventually(t, func() bool {
		return sleeper.metric(t, "notify_fenced_settles_total") == 1
	}, soon, 20*time.Millisecond)
	require.Equal(t, before, s.dump())
	s.oneMessageEach(id)
}

// The provider has said yes, and the mark is lost with the database. The command looks like one that was never answered.
func TestMarkThatIsLostWithTheDatabaseIsFoundAgainByAsking(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	u, err := url.Parse(s.env["DATABASE_URL"])
	require.NoError(t, err)
	link := testkit.Proxy(t, u.Host)
	u.Host = link.Addr()
	letGo := s.hold()
	p := s.child(service.Env{"DATABASE_URL": u.String(), "SMS_TIMEOUT": "2m"})
	id := s.insert(1)[0]
	require.Eventually(t, func() bool { return len(s.sent()) == 1 }, soon, time.Millisecond)
	link.Cut()
	letGo()
	require.Eventually(t, func() bool { return strings.Contains(p.Stderr(), "a command could not be settled") }, soon, 10*time.Millisecond)
	require.Len(t, s.provider.Messages(), 1)
	require.Eventually(t, func() bool { return !p.ready() }, soon, 20*time.Millisecond, "it says that it cannot work")
	require.Equal(t, row{Status: "SENDING", Attempts: 1}, s.row(id))
	link.Restore()
	s.leaseRunsOut()
	require.Equal(t, row{"SENT", 2, 1, ""}, s.await(id, "SENT"))
	require.Eventually(t, p.ready, soon, 20*time.Millisecond)
	require.Len(t, s.sent(), 1)
	s.oneMessageEach(id)
}

func TestStopUnderLoadFinishesWhatIsBegunAndGivesBackTheRest(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.mode(sms.Mode{Mode: sms.ModeSlow, DelayMS: 300})
	c := s.child(service.Env{"SMS_RATE": "8", "SMS_BURST": "1", "SMS_TIMEOUT": "2m"})
	ids := s.insert(40)
	// In the middle: some are sent, some under way, and all others of the four workers wait for a token.
	require.Eventually(t, func() bool { return len(s.sent()) >= 5 }, soon, 10*time.Millisecond)
	require.NoError(t, c.Term(soon), "exit code 0")

	require.Zero(t, s.count("SENDING"), "nothing is left to a lease")
	require.Zero(t, s.count("UNKNOWN"), "no request was cut off")
	require.Equal(t, len(s.sent()), s.count("SENT"))
	require.Equal(t, 40-len(s.sent()), s.count("PENDING"))
	var counted int
	require.NoError(t, s.db.QueryRow(t.Context(), "SELECT sum(attempts) FROM t_notification_command WHERE status = 'PENDING'").Scan(&counted))
	require.Zero(t, counted, "what was not begun is not counted")

	s.mode(sms.Mode{Mode: sms.ModeOK})
	s.sender(nil)
	s.awaitCount("SENT", 40)
	require.Len(t, s.sent(), 40)
	s.oneMessageEach(ids...)
}

func TestPhoneNumbersLeaveNoTrace(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	c := s.child(nil)
	for _, mode := range []string{sms.ModeOK, sms.ModeReject, sms.ModeError, sms.ModeAcceptThenHang, sms.ModeAcceptThenReset} {
		s.mode(sms.Mode{Mode: mode})
		s.awaitTried(s.insert(1)[0])
	}
	s.mode(sms.Mode{Mode: sms.ModeOK})
	s.awaitCount("SENT", 4)
	var page any
	require.NoError(t, c.ops.GetJSON(t.Context(), "/ops/commands", nil, &page))
	require.NoError(t, c.Term(soon))

	require.Contains(t, c.Stderr(), "the provider refuses a message for good", "the log is the right one")
	for where, text := range map[string]string{"log": c.Stderr(), "database": s.dump(), "ops": fmt.Sprint(page)} {
		require.NotContains(t, text, strings.TrimPrefix(phone, "+"), where)
	}
}

// dump is everything that the service has stored.
func (s *stack) dump() string {
	s.t.Helper()
	var all strings.Builder
	for _, table := range []string{"t_notification_command", "t_rate_bucket", "t_message_consume", "t_message_retry", "t_dead_letter"} {
		rows, err := s.db.Query(s.t.Context(), "SELECT r::text FROM "+table+" r ORDER BY 1")
		require.NoError(s.t, err)
		for rows.Next() {
			var text string
			require.NoError(s.t, rows.Scan(&text))
			all.WriteString(table + text + "\n")
		}
		require.NoError(s.t, rows.Err())
	}
	return all.String()
}
