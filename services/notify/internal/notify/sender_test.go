package notify_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/deploy/world/sms"
	"example.com/paycast/services/notify/internal/notify"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/service"
)

// warm lets the sender open a connection, so that what comes next travels on a used one, as it does in life.
func (s *stack) warm() string {
	s.t.Helper()
	id := s.insert(1)[0]
	s.await(id, "SENT")
	return id
}

func TestAcceptedWithoutAnAnswerIsAskedAboutAndNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, mode := range []sms.Mode{{Mode: sms.ModeAcceptThenHang}, {Mode: sms.ModeAcceptThenReset}} {
		t.Run(mode.Mode, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			p := s.sender(nil)
			first := s.warm()
			s.mode(mode)
			id := s.insert(1)[0]
			r := s.await(id, "SENT")
			require.Equal(t, 2, r.Attempts, "one that was not answered, one that asked")
			require.Equal(t, float64(1), p.metric(t, `notify_attempts_total{result="UNKNOWN"}`))
			require.Len(t, s.sent(), 2, "each was sent once; net/http repeated nothing either")
			s.oneMessageEach(first, id)
		})
	}
}

func TestAcceptedWithAnErrorIsAskedAboutAtOnce(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.mode(sms.Mode{Mode: sms.ModeAcceptThenError})
	s.sender(nil)
	id := s.insert(1)[0]
	require.Equal(t, 1, s.await(id, "SENT").Attempts)
	require.Len(t, s.sent(), 1)
	s.oneMessageEach(id)
}

// What the key prevents: the same command under a second key is a second message.
func TestNewKeyForAnUnknownOutcomeWouldSendTwice(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.mode(sms.Mode{Mode: sms.ModeAcceptThenHang})
	p := s.sender(service.Env{"SMS_RETRY_BASE": "1h", "SMS_RETRY_CAP": "1h"})
	id, second := s.insert(1)[0], uuid.NewString()
	s.await(id, "UNKNOWN")
	s.mode(sms.Mode{Mode: sms.ModeOK})
	p.stop()
	_, err := s.db.Exec(t.Context(), "UPDATE t_notification_command SET command_id = $1, next_attempt_at = now()", second)
	require.NoError(t, err)
	s.sender(nil)
	s.await(second, "SENT")
	s.oneMessageEach(id, second)
}

func TestErrorBeforeAcceptanceIsRetriedWithTheSameKey(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.mode(sms.Mode{Mode: sms.ModeError})
	s.sender(nil)
	id := s.insert(1)[0]
	require.Equal(t, "http_503", s.await(id, "RETRY").Code)
	require.Eventually(t, func() bool { return len(s.sent()) >= 3 }, soon, 10*time.Millisecond)
	s.mode(sms.Mode{Mode: sms.ModeOK})
	s.await(id, "SENT")
	for _, p := range s.sent() {
		require.Equal(t, id, p.key)
	}
	s.oneMessageEach(id)
}

func TestRefusedForGoodIsFailedAndNeverTriedAgain(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.mode(sms.Mode{Mode: sms.ModeReject})
	s.sender(nil)
	id := s.insert(1)[0]
	require.Equal(t, row{"FAILED", 1, 0, "http_422"}, s.await(id, "FAILED"))
	s.mode(sms.Mode{Mode: sms.ModeOK})
	next := s.warm()
	require.Len(t, s.sent(), 2)
	s.oneMessageEach(next)
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.mode(sms.Mode{Mode: sms.ModeRateLimited, DelayMS: 1000})
	s.sender(nil)
	id := s.insert(1)[0]
	require.Equal(t, "http_429", s.await(id, "RETRY").Code)
	s.mode(sms.Mode{Mode: sms.ModeOK})
	s.await(id, "SENT")
	posts := s.sent()
	require.Greater(t, len(posts), 1)
	require.GreaterOrEqual(t, posts[1].at.Sub(posts[0].at), time.Second)
}

func TestUnreachableProviderIsRetried(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	p := s.sender(service.Env{"SMS_URL": "http://127.0.0.1:1"})
	id := s.insert(1)[0]
	require.Equal(t, "unreachable", s.await(id, "RETRY").Code)
	p.stop()
	s.sender(nil)
	s.await(id, "SENT")
	s.oneMessageEach(id)
}

// Broken off by the signal, a claim would be committed by the server all the same, and the command would be UNKNOWN after
// its lease.
func TestSenderThatIsStoppedInTheMiddleOfAClaimLeavesNothingClaimed(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	for _, sql := range []string{
		"CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN new; END $$",
		"CREATE TRIGGER wait BEFORE UPDATE ON t_notification_command FOR EACH ROW WHEN (new.status = 'SENDING') EXECUTE FUNCTION wait()",
	} {
		_, err := s.db.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	gate, err := s.db.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = gate.Rollback(context.Background()) })
	_, err = gate.Exec(t.Context(), "SELECT pg_advisory_xact_lock(7)")
	require.NoError(t, err)
	p := s.sender(nil)
	id := s.insert(1)[0]
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var waiting int
		err := gate.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&waiting)
		assert.NoError(c, err)
		assert.Positive(c, waiting)
	}, soon, 10*time.Millisecond)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.stop()
	}()
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.False(c, p.ready()) }, soon, time.Millisecond)
	require.NoError(t, gate.Commit(t.Context()))
	<-stopped
	require.Equal(t, "PENDING", s.await(id, "PENDING").Status)
	require.Zero(t, s.row(id).Attempts)
}

// The table is one that the planner would rather read, and its plans outlive that: after a burst each claim and each settle
// would read all of history.
func TestSenderNeverReadsTheWholeTable(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	ids := s.insert(80)
	_, err := s.db.Exec(t.Context(), "ANALYZE t_notification_command")
	require.NoError(t, err)
	p := s.sender(nil)
	require.Eventually(t, func() bool { return len(s.provider.Messages()) == len(ids) }, soon, 20*time.Millisecond)
	p.stop()
	require.EventuallyWithT(t, func(c *assert.CollectT) { // what a session has read is counted before it is gone
		var sessions int
		err := s.db.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'notify-sender'").Scan(&sessions)
		assert.NoError(c, err)
		assert.Zero(c, sessions)
	}, soon, 20*time.Millisecond)
	var whole, probes int
	err = s.db.QueryRow(t.Context(), "SELECT seq_scan, idx_scan FROM pg_stat_user_tables WHERE relname = 't_notification_command'").Scan(&whole, &probes)
	require.NoError(t, err)
	require.Zero(t, whole)
	require.Greater(t, probes, 2*len(ids), "each command was claimed and settled")
	s.oneMessageEach(ids...)
}

func TestNothingIsLostWhilePaymentGivesNoContact(t *testing.T) {
	t.Parallel()
	for code, handler := range map[string]http.HandlerFunc{
		"contact_unavailable": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"contact_http_503": func(w http.ResponseWriter, _ *http.Request) {
			ops.Problem(w, http.StatusServiceUnavailable, "unavailable", "")
		},
		"contact_http_404": func(w http.ResponseWriter, _ *http.Request) { ops.Problem(w, http.StatusNotFound, "not-found", "") },
		"contact_empty":    func(w http.ResponseWriter, _ *http.Request) { ops.WriteJSON(w, http.StatusOK, map[string]string{}) },
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			s.setContact(handler)
			s.sender(nil)
			ids := s.insert(5)
			for _, id := range ids {
				require.Equal(t, code, s.await(id, "RETRY").Code)
			}
			require.Empty(t, s.sent())
			s.setContact(nil)
			s.awaitCount("SENT", 5)
			s.oneMessageEach(ids...)
		})
	}
}

func TestPausedSenderSendsNothingAndSaysSo(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	p := s.sender(service.Env{"SMS_RATE": "0"})
	ids := s.insert(3)
	var page struct{ Sending struct{ Paused bool } }
	require.NoError(t, p.ops.GetJSON(t.Context(), "/ops/commands", nil, &page))
	require.True(t, page.Sending.Paused)
	require.Equal(t, float64(1), p.metric(t, "notify_sending_paused"))
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the sample comes from the same loop as everything else
		assert.Equal(c, float64(3), p.metric(t, `notify_unsent_commands{status="PENDING"}`))
	}, soon, 50*time.Millisecond)
	require.Empty(t, s.sent())
	for _, id := range ids {
		require.Equal(t, row{Status: "PENDING"}, s.row(id))
	}
	s.sender(nil)
	s.awaitCount("SENT", 3)
	s.oneMessageEach(ids...)
}

func TestRateHoldsOverEveryWindowWithTwoSenders(t *testing.T) {
	t.Parallel()
	// What a sender has begun when a window opens may arrive within it: on a slow machine, one request of each worker.
	const rate, burst, senders, workers, commands = 20.0, 5, 2, 2, 50
	s := newStack(t)
	ids := s.insert(commands)
	for range senders {
		s.sender(service.Env{"SMS_RATE": "20", "SMS_BURST": "5", "SMS_WORKERS": "2"})
	}
	s.awaitCount("SENT", commands)
	s.oneMessageEach(ids...)
	posts := s.sent()
	require.Len(t, posts, commands)
	for i := range posts {
		for j := i; j < len(posts); j++ {
			window := posts[j].at.Sub(posts[i].at).Seconds()
			require.LessOrEqual(t, float64(j-i+1), rate*window+burst+senders*workers, "posts %d to %d within %.3f s", i, j, window)
		}
	}
}

// A provider that takes three leases for an answer. A request is cut off long before its lease ends, so a living
// sender's command is never taken over, however long the provider's trouble lasts. That the lease is longer than all
// that is done under it is a rule; see TestLeaseThatEndsBeforeItsWorkStopsTheStart.
func TestCommandOfALivingSenderIsNotTakenOver(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.mode(sms.Mode{Mode: sms.ModeSlow, DelayMS: 60_000})
	for range 2 {
		s.sender(service.Env{"SMS_TIMEOUT": "500ms", "SMS_LEASE": "20s"})
	}
	id := s.insert(1)[0]
	require.Eventually(t, func() bool { return len(s.sent()) >= 6 }, soon, 20*time.Millisecond)
	require.Zero(t, s.row(id).Takeovers)
	s.mode(sms.Mode{Mode: sms.ModeOK})
	require.Zero(t, s.await(id, "SENT").Takeovers)
	s.oneMessageEach(id)
}

func TestLeaseThatEndsBeforeItsWorkStopsTheStart(t *testing.T) {
	t.Parallel()
	err := notify.Send(t.Context(), service.Env{
		"DATABASE_URL": "postgres://x", "SMS_URL": "http://x", "PAYMENT_OPS_URL": "http://x", "OPS_TOKEN": opsToken,
		"SMS_TIMEOUT": "20s", "SMS_LEASE": "20s",
	})
	require.ErrorAs(t, err, new(*service.ConfigError))
	require.ErrorContains(t, err, "SMS_LEASE and SMS_TIMEOUT: lease 20s is too short: deadline 20s + margin")
}

func TestMissingConfigurationIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	err := notify.Send(context.Background(), service.Env{})
	require.ErrorAs(t, err, new(*service.ConfigError))
	for _, name := range []string{"DATABASE_URL", "SMS_URL", "PAYMENT_OPS_URL"} {
		require.ErrorContains(t, err, name)
	}
	err = notify.Send(context.Background(), service.Env{
		"DATABASE_URL": "postgres://x", "SMS_URL": "localhost:80", "PAYMENT_OPS_URL": "ftp://x", "SMS_RATE": "-1", "SMS_BURST": "0",
		"SMS_WORKERS": "0", "SMS_POLL": "0s", "SMS_LEASE": "5s",
	})
	for _, part := range []string{"SMS_URL", "PAYMENT_OPS_URL", "OPS_TOKEN", "SMS_RATE", "SMS_BURST", "SMS_WORKERS", "SMS_POLL", "SMS_LEASE"} {
		require.ErrorContains(t, err, part)
	}
}
