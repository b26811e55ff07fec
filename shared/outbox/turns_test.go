package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

// claimIn runs a claim's statement, or one that was changed, and returns how many rows it took.
func claimIn(ctx context.Context, db interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, sql, token string) (taken int, err error) {
	var due, waiting int
	var from time.Time
	var places []pgtype.TID
	var ids []string
	err = db.QueryRow(ctx, sql, pgx.StrictNamedArgs{
		"destination": event.Topic, "alone": false, "from": time.Time{}, "batch": 500, "most": 500, "bytes": claimBytes, "token": token, "lease": time.Minute,
	}).Scan(&due, &waiting, &from, &places, &ids)
	return len(places), err
}

// waitsForAdvisory waits until a session of this database waits for an advisory lock.
func (s *stage) waitsForAdvisory() {
	s.t.Helper()
	testkit.Eventually(s.t, soon, func() error {
		var n int
		if err := s.sql.QueryRow(s.t.Context(), `select count(*) from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock' and wait_event = 'advisory'`).Scan(&n); err != nil || n == 0 {
			return fmt.Errorf("%d sessions wait for an advisory lock (%w)", n, err)
		}
		return nil
	})
}

func TestClaimsTakeTurnsAndTheSecondFindsWhatTheFirstHasLeft(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 1000, 1000)
	second := s.relay()
	first, err := s.sql.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = first.Rollback(context.Background()) })
	_, err = first.Exec(t.Context(), takeTurns, pgx.StrictNamedArgs{"destination": event.Topic})
	require.NoError(t, err)
	taken, err := claimIn(t.Context(), first, claimRows, "first")
	require.NoError(t, err)
	require.Equal(t, 500, taken)

	without, err := claimIn(t.Context(), s.sql, claimRows, "without")
	require.NoError(t, err)
	require.Zero(t, without, "a claim that does not wait sees the same 500 candidates, and they are locked")

	var rows []row
	done := testkit.Run(t, "second claim", func(ctx context.Context) error {
		err := error(nil)
		for again := true; again; again = postgres.Code(err) == lockNotAvailable { // a slow machine; the relay tries again too
			rows, _, err = second.claimAndRead(ctx, second.c.rule().Begin("second"), &lane{destination: event.Topic}, 500)
		}
		return err
	})
	s.waitsForAdvisory()
	require.NoError(t, first.Commit(t.Context()))
	<-done.Done()
	require.NoError(t, done.Stop())
	require.Len(t, rows, 500)
	require.Equal(t, 1000, s.count("status = 'SENDING'"))
}

// pausing lets a test stop a relay before one of its statements.
type pausing struct {
	before          string
	once            sync.Once
	reached, resume chan struct{}
	goOn            func()
}

func (p *pausing) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, p.before) {
		p.once.Do(func() { close(p.reached) })
		<-p.resume
	}
	return ctx
}

func (p *pausing) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *stage) pause(r *Relay, before string) *pausing {
	s.t.Helper()
	p := &pausing{before: before, reached: make(chan struct{}), resume: make(chan struct{})}
	p.goOn = sync.OnceFunc(func() { close(p.resume) })
	s.trace(r, p)
	return p
}

// trace gives the relay connections that tell the tracer of each statement.
func (s *stage) trace(r *Relay, tracer pgx.QueryTracer) {
	s.t.Helper()
	cfg := r.db.Config()
	cfg.ConnConfig.Tracer = tracer
	r.db.Close()
	var err error
	r.db, err = pgxpool.NewWithConfig(s.t.Context(), cfg)
	require.NoError(s.t, err)
	s.t.Cleanup(r.db.Close)
}

// A relay may be frozen, or its network slow, while its rows come to it.
func TestRelayThatStopsBeforeItReadsItsClaimKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 40, 40)
	slow, other := s.relay(), s.relay()
	p := s.pause(slow, "ctid = any")
	var late []row
	var broken error
	done := testkit.Run(t, "slow claim", func(ctx context.Context) error {
		late, _, broken = slow.claimAndRead(ctx, slow.c.rule().Begin("slow"), &lane{destination: event.Topic}, 10)
		return nil
	})
	t.Cleanup(p.goOn) // before the task is waited for
	select {
	case <-p.reached:
	case <-done.Done():
		t.Fatal("the claim has ended without reading its rows")
	}
	rows, _, err := other.claimAndRead(t.Context(), other.c.rule().Begin("other"), &lane{destination: event.Topic}, 500)
	require.NoError(t, err)
	require.Len(t, rows, 30)
	s.exec("update t_outbox_claim set lease_until = now() - interval '1 second' where owner_token like 'slow/%'") // taken over like anybody's
	require.NoError(t, other.takeOver(t.Context()))
	require.Equal(t, 10, s.count("status = 'RETRY' and takeover_count = 1 and owner_token is null"))
	p.goOn()
	<-done.Done()
	require.NoError(t, done.Stop())
	require.ErrorIs(t, broken, errClaimBroken)
	require.Empty(t, late, "its rows are not its own any more, and it must not send them")
}

func TestClaimIsReadThoughItsConnectionBreaksFirst(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 10, 10)
	through, link := s.behind()
	r := s.relay(func(c *Config) { c.DatabaseURL, c.Lease = through, 10*time.Minute })
	p := s.pause(r, "ctid = any")
	var rows []row
	done := testkit.Run(t, "claim", func(ctx context.Context) (err error) {
		rows, _, err = r.claimAndRead(ctx, r.c.rule().Begin("x"), &lane{destination: event.Topic}, 10)
		return err
	})
	t.Cleanup(p.goOn)
	<-p.reached
	link.Cut()
	link.Restore()
	p.goOn()
	<-done.Done()
	require.NoError(t, done.Stop())
	require.Len(t, rows, 10)
}

func TestNextClaimDoesNotWaitUntilTheOneBeforeIsRead(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 40, 20)
	r := s.relay(func(c *Config) { c.Batch = 10 })
	p := s.pause(r, "ctid = any")
	testkit.Run(t, "relay", r.Run)
	t.Cleanup(p.goOn)
	<-p.reached
	s.eventually(20, "status = 'SENDING'") // one of each key
	p.goOn()
	s.eventually(40, "status = 'SENT'")
	s.requireOrdered(40)
}

// The delay is at least what the row says. At most it is what passed here, and once more what of that was not the wait: for
// the relay a claim begins somewhat earlier than for the server.
func TestDelayCountsTheWaitForATurnOnce(t *testing.T) {
	t.Parallel()
	s := setup(t)
	reg := prometheus.NewRegistry()
	turn := s.connect()
	s.must(turn, "begin")
	s.must(turn, takeTurns, pgx.StrictNamedArgs{"destination": event.Topic})
	begun := time.Now()
	s.append(created("O-1", 1))
	s.run(func(c *Config) { c.Metrics = reg })
	const wait = 500 * time.Millisecond
	testkit.Eventually(t, soon, func() error {
		var waited bool
		if err := s.sql.QueryRow(t.Context(), `select exists (select from pg_stat_activity where datname = current_database()
			and wait_event = 'advisory' and query_start < clock_timestamp() - $1::interval)`, wait).Scan(&waited); err != nil || !waited {
			return fmt.Errorf("the claim has not waited for %v (%w)", wait, err)
		}
		return nil
	})
	s.must(turn, "rollback")
	var delay float64
	testkit.Eventually(t, soon, func() error {
		families, err := reg.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if h := f.GetMetric()[0].GetHistogram(); f.GetName() == "outbox_publish_delay_seconds" && h.GetSampleCount() == 1 {
				delay = h.GetSampleSum()
				return nil
			}
		}
		return errors.New("not settled yet")
	})
	passed := time.Since(begun)
	require.LessOrEqual(t, delay, (passed + passed - wait).Seconds())
	require.Equal(t, 1, s.count("extract(epoch from sent_at - created_at) <= $1::float8", delay))
}

// Somebody's hand is in the table between a claim's commit and the reading of its rows.
func TestClaimIsReadWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, hand string
		whole      bool
	}{
		{"a row is touched", "update t_outbox_event set updated_at = now() where event_id = 'A-0'", true},
		{"the table is rewritten", "vacuum full t_outbox_event", true},
		{"a row is given back", "update t_outbox_event set status = 'PENDING', owner_token = null, lease_until = null where event_id = 'A-0'", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			s.fill("A", 30, 3)
			r := s.relay()
			p := s.pause(r, "ctid = any")
			task := testkit.Run(t, "relay", r.Run)
			t.Cleanup(p.goOn)
			<-p.reached
			s.exec(c.hand)
			p.goOn()
			if c.whole {
				s.eventually(30, "status = 'SENT'")
				s.requireOrdered(30)
				return
			}
			s.eventuallyLogged("claimed outbox rows have to wait for the end of their lease")
			s.eventually(1, "status = 'SENT'") // the one that was given back, and first of its key
			require.Equal(t, 29, s.count("status = 'SENDING'"))
			require.NoError(t, task.Stop())
			require.Equal(t, 1, s.claims(), "a takeover knows where to look")
			s.leasesRunOut()
			s.run()
			s.eventually(30, "status = 'SENT'")
			s.requireOrdered(30)
		})
	}
}

func TestWhatIsClaimedIsSentThoughTheHoldBesideItFails(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 4, 1)
	s.fill("B", 1, 1)
	s.exec("update t_outbox_event set next_retry_at = now() + interval '1 hour' where event_id = 'A-0'")
	s.exec(`create function fail() returns trigger language plpgsql as $$ begin raise exception using errcode = '40P01'; end $$`)
	s.exec(`create trigger fail before update of held_by on t_outbox_event for each row when (new.held_by is not null) execute function fail()`)
	s.run()
	s.eventually(1, "event_id = 'B-0' and status = 'SENT' and takeover_count = 0")
	s.eventuallyLogged("outbox rows that wait are in the claim's way")
}

func TestSessionThatLocksTheWholeWindowStopsNothingBehindIt(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 600, 600)
	s.fill("B", 100, 100)
	s.exec("update t_outbox_event set next_retry_at = now() where message_key like 'A%'")
	s.exec("update t_outbox_event set next_retry_at = now() where message_key like 'B%'")
	s.must(s.connect(), "begin; select from t_outbox_event where message_key like 'A%' for update")
	s.run()
	s.eventually(100, "status = 'SENT'")
	require.Equal(t, 600, s.count("status = 'PENDING'"))
}

func TestClaimOfOneDestinationThatHangsStopsNoOther(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 100, 100)
	s.exec("update t_outbox_event set destination = 'aaa' where event_id = 'A-7'")
	hanging := s.connect()
	s.must(hanging, "begin")
	s.must(hanging, takeTurns, pgx.StrictNamedArgs{"destination": "aaa"})
	r := s.relay()
	testkit.Run(t, "relay", r.Run)
	s.eventually(99, "status = 'SENT'")
	s.eventuallyLogged("another claim of this destination takes long; trying again")
	require.NoError(t, r.Ready(t.Context()))
}

// Polls are an hour apart here: what comes, comes by its wake-up.
func TestEventIsSentAtOnceBesideARowThatCannotBeTaken(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 1, 1)
	s.must(s.connect(), "begin; select from t_outbox_event where event_id = 'A-0' for update")
	require.NoError(t, kafka.EnsureTopics(t.Context(), s.kafka.Brokers(), "other"))
	s.run(func(c *Config) { c.Poll = time.Hour })
	waker := NewWaker(s.url, slog.New(s.logs))
	testkit.Run(t, "waker", waker.Run)
	for i := range 3 {
		s.fill(fmt.Sprintf("B%d", i), 1, 1)
		s.exec("update t_outbox_event set destination = 'other' where event_id like 'B%'")
		testkit.Eventually(t, soon, func() error {
			waker.Wake()
			if n := s.count("destination = 'other' and status = 'SENT'"); n != i+1 {
				return fmt.Errorf("%d of %d events are sent", n, i+1)
			}
			return nil
		})
	}
	require.Equal(t, 1, s.count("status = 'PENDING'"))
}

func TestRelaysTakeTurnsInADatabaseWithAnotherIsolation(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var name string
	require.NoError(t, s.sql.QueryRow(t.Context(), "select current_database()").Scan(&name))
	s.exec(`alter database "` + name + `" set default_transaction_isolation = 'repeatable read'`)
	s.fill("A", 2000, 50)
	for range 3 {
		s.run(func(c *Config) { c.Batch = 50 })
	}
	s.eventually(2000, "status = 'SENT'")
	s.requireOrdered(2000)
	require.Empty(t, s.logs.Find("the outbox cannot be read; trying again"))
}

func TestClaimSkipsARowThatSomebodyHasLockedAndWhatStandsBehindIt(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 12, 3) // four of each key
	s.must(s.connect(), "begin; select from t_outbox_event where message_key = 'A-1' and aggregate_version = 2 for update")
	r := s.relay()
	l := &lane{destination: event.Topic}
	rows, _, err := r.claimAndRead(t.Context(), r.c.rule().Begin("x"), l, 500)
	require.NoError(t, err)
	require.Len(t, rows, 4+1+4)
	require.True(t, l.left)
	require.Equal(t, 3, s.count("message_key = 'A-1' and aggregate_version > 1 and status = 'PENDING'"))
}

// Between the claim's look at the candidates and its locks somebody changes one of them and commits.
func TestClaimLeavesARowThatChangedUnderItsEyesAndWhatStandsBehindIt(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"anything":         "update t_outbox_event set updated_at = now() where event_id = 'A-4'",
		"taken by another": "update t_outbox_event set status = 'SENDING', owner_token = 'another', lease_until = now() + interval '1 hour' where event_id = 'A-4'",
		"held":             "update t_outbox_event set held_by = 'A-1' where event_id = 'A-4'",
		"deleted":          "delete from t_outbox_event where event_id = 'A-4'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			s.fill("A", 12, 3)
			const looked = "locked as materialized ("
			stopped := strings.Replace(claimRows, looked, "stopped as materialized (select pg_advisory_xact_lock(7) from (select count(*) from wanted) w),\n"+looked, 1)
			stopped = strings.Replace(stopped, "where ctid = any(array(select ctid from wanted))", "where (select count(*) from stopped) = 1 and ctid = any(array(select ctid from wanted))", 1)
			gate := s.connect()
			s.must(gate, "select pg_advisory_lock(7)")
			var taken int
			done := testkit.Run(t, "claim", func(ctx context.Context) (err error) {
				taken, err = claimIn(ctx, s.sql, stopped, "mine")
				return err
			})
			s.waitsForAdvisory()
			s.exec(change)
			s.must(gate, "select pg_advisory_unlock(7)")
			<-done.Done()
			require.NoError(t, done.Stop())
			require.Equal(t, 4+1+4, taken)
			require.Equal(t, 1, s.count("message_key = 'A-1' and owner_token = 'mine'"))
			require.Equal(t, 1, s.count("event_id = 'A-1' and owner_token = 'mine'"))
		})
	}
}

func TestGaugesCountWhatWaitsAndWhatIsDead(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 10, 5)
	s.exec("update t_outbox_event set created_at = now() - interval '1 hour' where event_id = 'A-7'")
	s.exec("update t_outbox_event set held_by = 'A-2' where event_id = 'A-7'")
	s.exec("update t_outbox_event set status = 'DEAD', last_error_code = 'x', next_retry_at = null where event_id in ('A-2', 'A-3')")
	s.exec("update t_outbox_event set skipped = true where event_id = 'A-3'")
	s.exec("update t_outbox_event set status = 'DEAD', last_error_code = 'x' where event_id in ('A-4', 'A-5', 'A-6')") // by hand, and still due
	s.must(s.connect(), "begin; select from t_outbox_event where event_id = 'A-5' for update")
	require.NoError(t, postgres.Transaction(t.Context(), s.db, func(tx *gorm.DB) error {
		_, _, err := skip(tx, "A-6", nil)
		return err
	}))
	s.exec("update t_outbox_event set status = 'SENT', sent_at = now(), broker_partition = 1, broker_offset = 1 where event_id = 'A-0'")
	r := s.relay()
	require.NoError(t, r.mend(t.Context()))
	require.NoError(t, r.read(t.Context()))
	require.InDelta(t, 5, testutil.ToFloat64(r.m.pending), 0, "with the one that is locked: a later look mends it")
	require.InDelta(t, 2, testutil.ToFloat64(r.m.dead), 0)
	require.InDelta(t, 1, testutil.ToFloat64(r.m.held), 0)
	require.InDelta(t, 3600, testutil.ToFloat64(r.m.oldest), 600)
}

func TestMendingComesRoundTheWholeBacklogAndBeginsAnew(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const rows = 2*mendSlice + 10
	s.fill("A", rows, rows)
	r := s.relay()
	for range 2 {
		s.exec("update t_outbox_event set status = 'SENDING', owner_token = event_id, lease_until = now() - interval '1 second' where event_id in ('A-0', 'A-99', $1)",
			fmt.Sprintf("A-%d", rows-1))
		s.exec("delete from t_outbox_claim")
		for range 3 {
			require.NoError(t, r.mend(t.Context()))
		}
		require.Equal(t, 3, s.claims())
		require.Zero(t, r.mended)
	}
}
