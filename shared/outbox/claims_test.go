package outbox

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/testkit"
)

// claims is how many claims are under way.
func (s *stage) claims() (n int) {
	s.t.Helper()
	require.NoError(s.t, s.sql.QueryRow(s.t.Context(), "select count(*) from t_outbox_claim").Scan(&n))
	return n
}

func (s *stage) eventuallyNoClaim() {
	s.t.Helper()
	testkit.Eventually(s.t, soon, func() error {
		if n := s.claims(); n > 0 {
			return fmt.Errorf("%d claims are not forgotten", n)
		}
		return nil
	})
}

// claimTwo claims two rows of different keys and runs their batch. accept is Kafka's word on one of them; the batch has
// finished when both are settled or given up.
func (s *stage) claimTwo(r *Relay) (first, second chain, accept func(chain), finished <-chan struct{}) {
	s.t.Helper()
	hold := r.c.rule().Begin("x")
	got, err := r.claim(s.t.Context(), hold, &lane{destination: event.Topic}, 10)
	require.NoError(s.t, err)
	work, done := make(chan chain, 2), make(chan struct{})
	b := &batch{r: r, lane: lane{destination: event.Topic}, hold: hold, results: make(chan outcome, 2)}
	go func() {
		defer close(done)
		b.run(s.t.Context(), got, work)
	}()
	accept = func(c chain) { b.results <- outcome{c.rows[0], answer{result: resultAccepted}} }
	return <-work, <-work, accept, done
}

// Most of what a claim used to cost were entries in indexes.
func TestClaimWritesNoIndexEntry(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 500, 500)
	r := s.relay()
	require.NoError(t, pgx.BeginFunc(t.Context(), r.db, func(tx pgx.Tx) error {
		_, err := claimIn(t.Context(), tx, claimRows, "x")
		require.NoError(t, err)
		var updated, hot int
		require.NoError(t, tx.QueryRow(t.Context(), `select pg_stat_get_xact_tuples_updated(c), pg_stat_get_xact_tuples_hot_updated(c)
			from cast('t_outbox_event' as regclass) c`).Scan(&updated, &hot))
		require.Equal(t, 500, updated)
		require.Equal(t, updated, hot, "an index knows a column that a claim changes, or pages are filled too far")
		return nil
	}))
}

func TestClaimIsForgottenWithItsLastRowAndNotBefore(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 2, 2)
	r := s.relay()
	first, second, accept, finished := s.claimTwo(r)
	accept(first)
	s.eventually(1, "status = 'SENT'")
	require.Equal(t, 1, s.claims())
	accept(second)
	<-finished
	require.Equal(t, 2, s.count("status = 'SENT'"))
	require.Zero(t, s.claims())
}

// The first row's settle is given up and the second's is not. Forgotten with the second, the first would stay claimed for
// ever.
func TestRowWhoseSettleWasGivenUpIsTakenOver(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 2, 2)
	s.exec(`create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$`)
	s.exec(`create trigger refuse before update on t_outbox_event for each row when (new.status = 'SENT') execute function refuse()`)
	r := s.relay(func(c *Config) { c.Lease, c.Deadline, c.Margin = 2*time.Second, time.Second, 500*time.Millisecond })
	first, second, accept, finished := s.claimTwo(r)
	accept(first)
	testkit.Eventually(t, soon, func() error {
		if len(s.logs.Find("outbox rows could not be settled before their lease ended; they will be sent again")) == 0 {
			return fmt.Errorf("the settle has not been given up")
		}
		return nil
	})
	s.exec(`drop trigger refuse on t_outbox_event`)
	accept(second)
	<-finished
	require.Equal(t, 1, s.count("status = 'SENDING' and event_id = $1", first.rows[0].eventID))
	s.leasesRunOut()
	s.run()
	s.eventually(2, "status = 'SENT'")
	s.eventuallyNoClaim()
}

func TestRelayThatIsFencedBeginsNothingMoreOfThatClaim(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 2, 2)
	first, second, accept, finished := s.claimTwo(s.relay())
	s.exec("update t_outbox_event set owner_token = 'successor'")
	accept(first)
	s.eventuallyLogged("outbox rows were taken over while this relay worked on them; its settle changed nothing on them")
	out := make(chan *message.Message)
	forwarder := testkit.Run(t, "forwarder", func(ctx context.Context) error {
		select {
		case m := <-out:
			m.Nack()
			return errors.New("it was begun")
		case <-ctx.Done():
			return nil
		}
	})
	second.send(t.Context(), out)
	require.NoError(t, forwarder.Stop())
	<-finished
	require.Equal(t, 2, s.count("owner_token = 'successor' and status = 'SENDING'"))
}

func TestRowThatIsLockedDuringATakeoverIsTakenOverLater(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 3, 3)
	gone := s.relay()
	_, _, err := gone.claimAndRead(t.Context(), gone.c.rule().Begin("gone"), &lane{destination: event.Topic}, 10)
	require.NoError(t, err)
	s.leasesRunOut()
	somebody := s.connect()
	s.must(somebody, "begin; select from t_outbox_event where event_id = 'A-1' for update")
	s.run()
	s.eventually(2, "status = 'SENT'")
	require.Equal(t, 1, s.count("status = 'SENDING' and event_id = 'A-1'"))
	require.Equal(t, 1, s.claims())
	s.must(somebody, "rollback")
	s.eventually(3, "status = 'SENT'")
	s.eventuallyNoClaim()
}

// An operator who edits a row, or restores one, knows nothing of notes.
func TestRowInSendingWithoutANoteOfItsClaimIsTakenOver(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 3, 3)
	s.exec("update t_outbox_event set status = 'SENDING', owner_token = 'gone', lease_until = now() - interval '1 second' where event_id <> 'A-2'")
	s.exec("update t_outbox_event set status = 'SENDING', owner_token = 'noted', lease_until = now() - interval '1 second' where event_id = 'A-2'")
	s.exec("insert into t_outbox_claim (owner_token, lease_until, event_ids) values ('noted', now() + interval '1 hour', '{another}')")
	r := s.relay()
	require.NoError(t, r.mend(t.Context()))
	var noted []string
	require.NoError(t, s.sql.QueryRow(t.Context(), "select event_ids from t_outbox_claim where owner_token = 'noted'").Scan(&noted))
	require.ElementsMatch(t, []string{"A-2", "another"}, noted, "mending has seen a slice; the note may know more")
	testkit.Run(t, "relay", r.Run)
	s.eventually(3, "status = 'SENT' and takeover_count = 1")
	s.eventuallyNoClaim()
}

func TestRowWhoseCountIsAtTheEndOfItsRangeStopsNoOther(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 3, 3)
	s.exec("update t_outbox_event set takeover_count = 1000000000, retry_count = 1000000000 where event_id = 'A-1'")
	gone := s.relay()
	hold := gone.c.rule().Begin("gone")
	_, _, err := gone.claimAndRead(t.Context(), hold, &lane{destination: event.Topic}, 10)
	require.NoError(t, err)
	_, err = gone.settle(t.Context(), hold.Token, []outcome{
		{row{eventID: "A-0"}, answer{result: resultUnknown, code: "x"}}, {row{eventID: "A-1"}, answer{result: resultUnknown, code: "x"}},
	}, false)
	require.NoError(t, err)
	require.Equal(t, 2, s.count("status = 'RETRY' and retry_count in (1, 1000000000)"))
	s.exec("update t_outbox_event set takeover_count = 1000000000, next_retry_at = now() where event_id = 'A-1'")
	_, _, err = gone.claimAndRead(t.Context(), gone.c.rule().Begin("gone"), &lane{destination: event.Topic}, 10)
	require.NoError(t, err)
	s.leasesRunOut()
	require.NoError(t, gone.takeOver(t.Context()))
	require.Equal(t, 3, s.count("status = 'RETRY'"))
	s.exec("update t_outbox_event set alone = false, next_retry_at = now()")
	s.run()
	s.eventually(3, "status = 'SENT'")
}

func TestRowThatWaitsForNothingIsSent(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 6, 3) // and then behind them
	s.exec("update t_outbox_event set held_by = 'gone' where event_id = 'A-0'")
	s.exec("update t_outbox_event set held_by = event_id where event_id = 'A-1'")
	s.exec("update t_outbox_event set held_by = 'A-5' where event_id in ('A-2', 'A-4')")
	s.fill("B", 2, 1)
	s.exec("update t_outbox_event set status = 'DEAD', last_error_code = 'x', next_retry_at = null where event_id = 'B-0'")
	s.exec("update t_outbox_event set held_by = 'B-0' where event_id = 'B-1'")
	s.run()
	s.eventually(6, "status = 'SENT'")
	require.Equal(t, 1, s.count("held_by = 'B-0'"), "this one waits with reason")
}
