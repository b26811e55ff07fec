package outbox

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/postgres"
)

func TestConcurrentClaimsShareNoRowAndNoKey(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 3000, 30)
	relays := []*Relay{s.relay(), s.relay(), s.relay(), s.relay()}
	var mu sync.Mutex
	claimed, holder := map[string]int{}, map[string]string{}
	var wg sync.WaitGroup
	for _, r := range relays {
		wg.Go(func() {
			for range 15 {
				hold := r.c.rule().Begin("x")
				rows, _, err := r.claimAndRead(t.Context(), hold, &lane{destination: event.Topic}, 50)
				if postgres.Code(err) == lockNotAvailable {
					continue // the others' claims take long on a slow machine; the relay tries again too
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, row := range rows {
					claimed[row.eventID]++
					if other, ok := holder[row.key]; ok && other != hold.Token {
						t.Errorf("key %s is in two hands", row.key)
					}
					holder[row.key] = hold.Token
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for id, n := range claimed {
		require.Equal(t, 1, n, id)
	}
	require.NotEmpty(t, claimed)
}

// plainClaim is what most outboxes do: SKIP LOCKED row by row, oldest first.
const plainClaim = `
update t_outbox_event set status = 'SENDING', owner_token = @token, lease_until = now() + interval '1 minute'
where event_id = any(array(
  select event_id from t_outbox_event where status in ('PENDING', 'RETRY') order by created_at limit @n for update skip locked))
returning aggregate_version`

func TestSkipLockedAloneWouldSendALaterEventFirst(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 4, 1)
	first, second := s.relay(), s.relay()
	versions := func(n int) (versions []int64) {
		rows, err := second.db.Query(t.Context(), plainClaim, pgx.StrictNamedArgs{"token": "t", "n": n})
		require.NoError(t, err)
		versions, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		require.NoError(t, err)
		return versions
	}
	mine, _, err := first.claimAndRead(t.Context(), first.c.rule().Begin("first"), &lane{destination: event.Topic}, 1)
	require.NoError(t, err)
	require.Len(t, mine, 1)

	others, waiting, err := second.claimAndRead(t.Context(), second.c.rule().Begin("second"), &lane{destination: event.Topic}, 10)
	require.NoError(t, err)
	require.Empty(t, others, "version 1 is unsent in other hands, so version 2 must wait")
	require.Equal(t, 3, waiting)
	require.Equal(t, []int64{2}, versions(1), "the broken mechanism takes it, and may be the faster one")
}

func TestSeveralRelaysKeepTheOrderOfEachKeyThroughFailures(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 1500, 7)
	for _, err := range []*kerr.Error{kerr.RequestTimedOut, kerr.NotLeaderForPartition, kerr.NotEnoughReplicasAfterAppend, kerr.KafkaStorageError} {
		s.kafka.FailProduce(event.Topic, 12, err)
	}
	for range 3 {
		s.run(func(c *Config) { c.Batch = 60 })
	}
	p := s.processWith(leased(10 * time.Second)) // the others get what it leaves behind
	s.eventually(1, "status = 'SENT' and event_id = 'A-300'")
	p.Kill()
	s.eventually(1500, "status = 'SENT'")
	s.requireOrdered(1500)
	s.requireTrue()
	require.Zero(t, s.count("held_by is not null or alone"))
}

func TestTakeoverObeysTheOrderOfTheKey(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 3, 1)
	dead := s.relay()
	hold := dead.c.rule().Begin("dead")
	rows, _, err := dead.claimAndRead(t.Context(), hold, &lane{destination: event.Topic}, 10)
	require.NoError(t, err)
	require.Len(t, rows, 3)
	// It settles the first as unreachable, with a long pause, and dies before it gives back the others.
	_, err = dead.settle(t.Context(), hold.Token, []outcome{{chains(rows)[0][0], answer{result: resultUnreachable, code: codeNoBroker}}}, false)
	require.NoError(t, err)
	s.exec("update t_outbox_event set next_retry_at = now() + interval '1 hour' where aggregate_version = 1")
	s.leasesRunOut()
	task := s.run()
	s.eventually(2, "held_by = 'A-0' and takeover_count = 1")
	require.Empty(t, s.published())
	require.NoError(t, task.Stop())
	s.exec("update t_outbox_event set next_retry_at = now() where aggregate_version = 1")
	s.run()
	s.eventually(3, "status = 'SENT'")
	s.requireOrdered(3)
}

// A settle and a hold that meet: whichever comes first, no row is held by one that has gone.
func TestNoRowIsHeldByOneThatHasGone(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 400, 1)
	r := s.relay()
	for range 200 {
		hold := r.c.rule().Begin("x")
		rows, _, err := r.claimAndRead(t.Context(), hold, &lane{destination: event.Topic}, 1)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		s.exec("update t_outbox_event set updated_at = now() - interval '1 minute' where status = 'SENDING'") // it is taking long
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := r.holdBack(t.Context(), lane{destination: event.Topic}); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if _, err := r.settle(t.Context(), hold.Token, []outcome{{rows[0], answer{result: resultAccepted, offset: -1}}}, true); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		require.Zero(t, s.count("held_by is not null and held_by in (select event_id from t_outbox_event where status = 'SENT')"))
	}

	// Freed in the same statement, a hold that was committed while the settle waited would be missed.
	require.NotContains(t, strings.ToLower(settleSent), "held_by")
}
