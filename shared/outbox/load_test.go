package outbox

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/testkit"
)

func TestForgottenTransactionStallsNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	forgotten, err := pgx.Connect(t.Context(), s.url)
	require.NoError(t, err)
	defer func() { require.NoError(t, forgotten.Close(context.Background())) }()
	_, err = forgotten.Exec(t.Context(), "begin; select pg_current_xact_id()")
	require.NoError(t, err)
	s.run()
	s.fill("A", 200, 20)
	s.eventually(200, "status = 'SENT'")
	s.requireOrdered(200)
}

// A claim's cost must not grow with what has been sent, nor with dead versions that a pinned horizon keeps vacuum from
// removing. What it reads is counted, because time depends on the machine.
func TestClaimReadsLittleWhateverLiesInTheTable(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.exec("alter table t_outbox_event set (autovacuum_enabled = off)")
	pin, err := pgx.Connect(t.Context(), s.url)
	require.NoError(t, err)
	defer func() { require.NoError(t, pin.Close(context.Background())) }()
	_, err = pin.Exec(t.Context(), "begin isolation level repeatable read; select 1 from t_outbox_event limit 1")
	require.NoError(t, err)
	s.fill("sent", 20000, 2000)
	s.exec("update t_outbox_event set status = 'SENT', sent_at = now(), broker_partition = 1, broker_offset = 1")
	s.fill("A", 500, 500)
	r := s.relay(func(c *Config) { c.Batch = 100 })
	for range 3 { // 1,500 dead versions of the very rows that are due
		s.exec("update t_outbox_event set updated_at = now() where status = 'PENDING'")
	}

	s.claimCost(r, time.Time{}, 100) // the first one marks dead index entries it comes across
	n := s.claimCost(r, time.Time{}, 100)
	t.Logf("%d blocks", n)
	require.Less(t, n, int64(8000), "the table has tens of thousands of row versions")
	require.Equal(t, 200, s.count("status = 'SENDING'"))
}

func TestClaimOfLargeRowsIsBoundedByTheirBytes(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 30, 30)
	s.exec("update t_outbox_event set payload = repeat('x', 900000)")
	r := s.relay()
	for _, want := range []int{5, 5} { // four are less than the bound, the fifth crosses it
		rows, waiting, err := r.claimAndRead(t.Context(), r.c.rule().Begin("x"), &lane{destination: event.Topic}, 500)
		require.NoError(t, err)
		require.Len(t, rows, want)
		require.Zero(t, waiting, "what was left for its size is not in anybody's way")
		for _, chain := range chains(rows) {
			require.EqualValues(t, 1, chain[0].version)
		}
	}
}

// queries counts statements.
type queries struct{ n atomic.Int64 }

func (q *queries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	q.n.Add(1)
	return ctx
}

func (q *queries) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestIdleRelayAsksLessThanTwiceASecond(t *testing.T) {
	t.Parallel()
	s := setup(t)
	r := s.relay(func(c *Config) { c.Poll = time.Second })
	count := &queries{}
	s.trace(r, count)
	testkit.Run(t, "relay", r.Run)
	testkit.Eventually(t, soon, func() error { // and it does ask
		if n := count.n.Load(); n < 6 {
			return fmt.Errorf("asked %d times", n)
		}
		return nil
	})
	count.n.Store(0)
	start := time.Now()
	testkit.Eventually(t, soon, func() error { // long enough for the gauges, which are read now and then
		if passed := time.Since(start); passed < 14*time.Second {
			return fmt.Errorf("only %v have passed", passed)
		}
		return nil
	})
	require.Less(t, float64(count.n.Load())/time.Since(start).Seconds(), 2.0)
}

// Somebody has locked the note of a claim whose lease is over, and thinks.
func TestNoteThatIsLockedDoesNotKeepTheRelayBusy(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.exec("insert into t_outbox_claim values ('gone/1', now() - interval '1 minute', array['A-0'])")
	s.must(s.connect(), "begin; select from t_outbox_claim for update")
	r := s.relay(func(c *Config) { c.Poll = time.Hour })
	count := &queries{}
	s.trace(r, count)
	testkit.Run(t, "relay", r.Run)
	start := time.Now()
	testkit.Eventually(t, soon, func() error {
		if n, passed := count.n.Load(), time.Since(start); n < 2 || passed < 3*time.Second {
			return fmt.Errorf("%d statements in %v", n, passed)
		}
		return nil
	})
	require.Less(t, count.n.Load(), int64(50)) // a look at the start and one with the first connection that listens; gauges
}

// Claims start where the last one did, past what has been sent. What comes in before that point waits for the next look,
// which starts from the beginning.
func TestRowBeforeTheStartOfAClaimIsFoundByTheNextLook(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 30, 30)
	r := s.relay(func(c *Config) { c.Batch = 10 })
	l := &lane{destination: event.Topic}
	claim := func(l *lane) int {
		rows, _, err := r.claimAndRead(t.Context(), r.c.rule().Begin("x"), l, 10)
		require.NoError(t, err)
		return len(rows)
	}
	require.Equal(t, 10, claim(l))
	require.False(t, l.from.IsZero())
	s.exec("update t_outbox_event set next_retry_at = now() - interval '1 hour' where status = 'PENDING'")
	require.Zero(t, claim(l), "all that is due was due before the start")
	lanes, _, err := r.due(t.Context())
	require.NoError(t, err)
	require.Len(t, lanes, 1)
	require.Equal(t, 10, claim(&lanes[0]))
}
