package outbox

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/testkit"
)

// process starts a relay as an operating-system process, whose claims outlive the test unless leasesRunOut ends them.
func (s *stage) process(crashOn string) *testkit.Process {
	s.t.Helper()
	return s.processWith(map[string]string{"CRASH_ON": crashOn})
}

// processWith is process with another environment.
func (s *stage) processWith(more map[string]string) *testkit.Process {
	s.t.Helper()
	env := map[string]string{
		"DATABASE_URL": s.url, "KAFKA_BROKERS": s.kafka.Brokers(), "LEASE": "1h", "DEADLINE": "30m", "MARGIN": "1m",
	}
	maps.Copy(env, more)
	return testkit.Exec(s.t, "./testdata/relay", env)
}

// leased are the bounds of a relay whose claims run out by themselves.
func leased(lease time.Duration) map[string]string {
	return map[string]string{"LEASE": lease.String(), "DEADLINE": (lease * 3 / 4).String(), "MARGIN": (lease / 8).String()}
}

// afterDeath is the time after the only relay was killed: what the server still did for it is over, and so are its claims.
func (s *stage) afterDeath() {
	s.t.Helper()
	s.exec("select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = current_database() and application_name = 'outbox-relay'")
	s.leasesRunOut()
}

func TestRelayKilledAgainAndAgainLosesNothingAndParksNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.kafka.DelayProduce(5 * time.Millisecond)
	s.fill("A", 2000, 200)
	for kills := range 3 { // a row in the hands of four would be parked, and rightly
		p := s.process("")
		want := 600 * (kills + 1) // somewhere in the middle of its work
		testkit.Eventually(t, soon, func() error {
			if n := s.count("status = 'SENT'"); n < want {
				return fmt.Errorf("%d sent", n)
			}
			return nil
		})
		p.Kill()
		s.afterDeath()
	}
	s.process("")
	s.eventually(2000, "status = 'SENT'")
	s.requireOrdered(2000)
	s.requireTrue()
}

// requireTrue: what the table calls sent stands on the topic where the table says.
func (s *stage) requireTrue() {
	s.t.Helper()
	place := map[string]string{}
	for _, r := range testkit.ReadTopic(s.t, s.kafka.Brokers(), event.Topic) {
		place[fmt.Sprint(r.Partition, "/", r.Offset)] = header(r, "ce_id")
	}
	rows, err := s.sql.Query(s.t.Context(), "select event_id, broker_partition, broker_offset from t_outbox_event where status = 'SENT' and broker_offset is not null")
	require.NoError(s.t, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		var partition int32
		var offset int64
		require.NoError(s.t, rows.Scan(&id, &partition, &offset))
		require.Equal(s.t, id, place[fmt.Sprint(partition, "/", offset)])
	}
	require.NoError(s.t, rows.Err())
}

func TestRelayPausedPastItsLeaseIsReplacedAndFencedWhenItWakes(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 200, 200)
	s.kafka.Pause()                                   // the first relay hangs in its sends
	zombie := s.processWith(leased(20 * time.Second)) // it is paused long before its sends are given up
	testkit.Eventually(t, soon, func() error {
		var read bool // a claim is committed before its rows are read; the next look comes after that
		require.NoError(t, s.sql.QueryRow(t.Context(), `select exists (select from pg_stat_activity
			where datname = current_database() and application_name = 'outbox-relay' and query like '%recursive lanes%'
			  and query_start > (select min(updated_at) from t_outbox_event where status = 'SENDING'))`).Scan(&read))
		if !read {
			return fmt.Errorf("nothing is claimed and read yet")
		}
		return nil
	})
	zombie.Pause()
	s.kafka.Resume()
	s.run()
	s.eventually(200, "status = 'SENT'")
	const settled = "select string_agg(event_id || broker_partition || '/' || broker_offset || sent_at, ',' order by event_id) from t_outbox_event"
	var before, after string
	require.NoError(t, s.sql.QueryRow(t.Context(), settled).Scan(&before))
	zombie.Resume()
	require.NoError(t, zombie.Term(soon), "it ends cleanly")
	require.NoError(t, s.sql.QueryRow(t.Context(), settled).Scan(&after))
	require.Equal(t, before, after)
	require.Contains(t, zombie.Stderr(), "outbox rows were taken over while this relay worked on them")
	s.requireOrdered(200)
}

func TestEventThatCrashesRelaysIsTriedAloneAndThenParked(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 40, 40)
	deaths := 0
	for s.count("event_id = 'A-7' and alone and takeover_count >= 5") == 0 { // the next relay's takeover parks it
		require.Error(t, s.process("A-7").Wait(soon))
		s.afterDeath()
		deaths++
		require.Less(t, deaths, 20)
	}
	require.Greater(t, deaths, 3, "in company, and then alone")
	s.process("A-7")
	s.eventually(39, "status = 'SENT'")
	s.eventually(1, "status = 'DEAD'")
	require.Equal(t, 1, s.count("event_id = 'A-7' and status = 'DEAD' and last_error_code = 'crashes_relay'"))
	require.Len(t, s.published(), 39)
}

func TestTerminatedRelayEndsWithZeroAndLeavesNothingClaimed(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.kafka.DelayProduce(200 * time.Millisecond) // 100 rows of each key take 20 seconds at least
	s.fill("A", 2000, 20)
	p := s.process("")
	testkit.Eventually(t, soon, func() error {
		if s.count("status = 'SENT'") < 50 {
			return fmt.Errorf("not in the middle of it yet")
		}
		return nil
	})
	require.NoError(t, p.Term(soon))
	require.Zero(t, s.count("status = 'SENDING'"))
	sent, published := s.count("status = 'SENT'"), len(s.published())
	require.Less(t, sent, 2000)
	require.GreaterOrEqual(t, published, sent)
	require.LessOrEqual(t, published, sent+s.count("retry_count > 0"), "what was not answered may have been stored")
	s.requireTrue()
}
