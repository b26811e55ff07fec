package consumer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/service"
)

// usual are the settings of a service that sets nothing but the brokers.
func usual(t testing.TB) Settings {
	var s Settings
	require.NoError(t, service.Env{"KAFKA_BROKERS": "127.0.0.1:1"}.Parse(&s))
	return s
}

func TestTheUsualSettingsKeepALeaseLongerThanItsWork(t *testing.T) {
	t.Parallel()
	s := usual(t)
	require.Greater(t, s.Lease, s.HandlerTimeout+s.rule().Margin)
	require.Less(t, drain, 20*time.Second, "service.Process gives loops that long to end")
}

func TestSettingsThatWouldBreakAPromiseAreRefusedAllAtOnce(t *testing.T) {
	t.Parallel()
	var s Settings
	err := service.Env{
		"KAFKA_BROKERS": "127.0.0.1:1", "CONSUMER_LEASE": "5s", "CONSUMER_ATTEMPTS": "0", "CONSUMER_BACKOFF": "10m", "CONSUMER_STUCK": "0s",
	}.Parse(&s)
	for _, name := range []string{"CONSUMER_LEASE", "CONSUMER_ATTEMPTS", "CONSUMER_MAX_BACKOFF", "CONSUMER_STUCK"} {
		require.ErrorContains(t, err, name)
	}
}

func TestBackoffGrowsStaysBelowItsLimitAndIsNeverNothing(t *testing.T) {
	t.Parallel()
	s := usual(t)
	rapid.Check(t, func(t *rapid.T) {
		failed := rapid.IntRange(-1, 1000).Draw(t, "failed")
		d := s.backoff(failed)
		if d < s.Backoff/4 || d > s.MaxBackoff+s.Backoff/4 {
			t.Fatalf("%v after %d failures", d, failed)
		}
		if failed <= 1 && d > 2*s.Backoff {
			t.Fatalf("%v before the second attempt", d)
		}
	})
}

func TestAHandlersWordGoesBeforeWhatItsErrorLooksLike(t *testing.T) {
	t.Parallel()
	down := &pgconn.PgError{Code: "53300"}
	for want, err := range map[string]error{
		classDown:            fmt.Errorf("writing: %w", down),
		inbox.ClassTransient: errors.New("anything"),
		inbox.ClassBadData:   fmt.Errorf("outer: %w", BadData(down)),
		inbox.ClassRefused:   Refused(down),
		inbox.ClassWaiting:   Waiting(down),
		inbox.ClassPanic:     panicked{value: down},
	} {
		require.Equal(t, want, class(err), "%v", err)
	}
	require.Equal(t, inbox.ClassTransient, class(Transient(down)))
	require.NoError(t, BadData(nil))
}

func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	c := &consumer{Config: Config{Settings: usual(t)}}
	for failed := range c.Attempts + 2 {
		f := c.judge(inbox.Delivery{Failed: failed}, errors.New("no"))
		require.Equal(t, failed+1 >= c.Attempts, f.Outcome == inbox.Dead, "after %d", failed)
		require.Equal(t, inbox.Waiting, c.judge(inbox.Delivery{Failed: failed}, Waiting(errors.New("no"))).Outcome)
	}
	require.Equal(t, inbox.Dead, c.judge(inbox.Delivery{Waited: c.MaxWait + time.Second}, Waiting(errors.New("no"))).Outcome)
}

func TestNoPersonalDataStaysInAnErrorsText(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		errors.New(`user "Ann Example" with phone +4915112345678 and ann@example.com said 'secret'`),
		&pgconn.PgError{Code: "22P02", Message: `invalid input syntax for type bigint: "4915112345678"`, Detail: "ann@example.com"},
		panicked{value: "4915112345678"},
		errors.New("4915112345678\x00\xff"),
	} {
		text := scrub(err)
		for _, bad := range []string{"Ann", "4915112345678", "ann@", "secret", "\x00", "\xff"} {
			require.NotContains(t, text, bad)
		}
	}
	require.LessOrEqual(t, len(scrub(errors.New(strings.Repeat("é", 4000)))), maxText)
}

func TestOnlyDifferentOrdersInARowOpenTheBreaker(t *testing.T) {
	t.Parallel()
	b := breaker{limit: 3}
	for range 10 {
		require.True(t, b.failed("the same"), "one bad order is not a bad build")
	}
	require.True(t, b.failed("b"))
	b.succeeded()
	require.True(t, b.failed("c"))
	require.True(t, b.failed("d"))
	require.False(t, b.open())
	require.True(t, b.failed("e"))
	require.True(t, b.open())
	require.False(t, b.failed("f"))
	require.False(t, b.failed("c"), "nor is an attempt of the first ones counted while it is open")
	b.succeeded()
	require.False(t, b.open())
}

func TestAPartitionThatLagsAndDoesNotMoveIsNotReady(t *testing.T) {
	t.Parallel()
	var m movement
	m.heard()
	m.note("t/0", 5, 10)
	require.NoError(t, m.err(time.Hour))
	m.still["t/0"] = standstill{committed: 5, since: time.Now().Add(-2 * time.Hour)}
	require.ErrorContains(t, m.err(time.Hour), "t/0")
	m.note("t/0", 5, 0)
	require.NoError(t, m.err(time.Hour), "without lag there is nothing to do")
	m.note("t/0", 5, 1)
	m.note("t/0", 6, 1)
	require.NoError(t, m.err(time.Minute))
	m.note("t/0", 6, -3)
	require.ErrorContains(t, m.err(time.Hour), "has no offset 6")
}

func TestMetricsAreWellFormedAndStartAtZero(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	newMetrics(reg, "g", func() float64 { return 0 })
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	require.Empty(t, problems)
	families, err := reg.Gather()
	require.NoError(t, err)
	series := map[string]int{}
	for _, f := range families {
		series[f.GetName()] = len(f.GetMetric())
	}
	require.Equal(t, map[string]int{
		"consumer_messages_total": len(event.Types())*9 + 1, "consumer_dedup_hits_total": 1, "consumer_lag_messages": event.Partitions,
		"consumer_oldest_message_age_seconds": 1, "consumer_dead_letters": 1, "consumer_unfinished_messages": 4,
		"consumer_paused_partitions": 1, "consumer_lease_expired_total": 1, "consumer_fenced_settles_total": 1,
	}, series)
}

func TestOnlyTheFirstMessagesOfAPartitionAreWatched(t *testing.T) {
	t.Parallel()
	p := partitions{together: 3}
	at := func(offset int64) event.Record { return event.Record{Topic: "t", Offset: offset} }
	p.enter(at(10))
	require.True(t, p.watched(at(10)))
	p.passed(at(10)) // a repetition, which ran nothing
	p.enter(at(11))
	require.True(t, p.watched(at(11)))
	p.ran(at(11))
	p.passed(at(11))
	require.True(t, p.watched(at(13)), "it may have been in hand together with 11")
	require.False(t, p.watched(at(14)))
	p.passed(at(13))
	p.enter(at(12))
	require.False(t, p.watched(at(14)), "what comes a second time is no gap")

	p.enter(at(20))
	require.True(t, p.watched(at(25)), "behind a gap")
	require.False(t, p.alone(at(20)))
	p.suspect(at(20))
	require.True(t, p.alone(at(22)))
	require.False(t, p.alone(at(23)))
	p.ran(at(20))
	require.True(t, p.watched(at(22)))
	require.False(t, p.watched(at(23)))
}
