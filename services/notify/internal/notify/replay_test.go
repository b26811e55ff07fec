package notify_test

import (
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/replay"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

func TestReplayAsksHowManyPeopleItMayReach(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	p, broker := s.consumer()
	client := p.ops
	bad := consumertest.Paid("O-1", "ann")
	bad.Payload = []byte(`{"order_no":"O-1"}`)
	testkit.Produce(t, broker.Brokers(), event.Topic, consumertest.Record(bad))
	testkit.Eventually(t, soon, func() error {
		var told struct{ Letters []any }
		if err := client.GetJSON(t.Context(), "/ops/dead-letters", nil, &told); err != nil || len(told.Letters) != 1 {
			return http.ErrNoLocation
		}
		return nil
	})
	ask := map[string]any{"actor": "anna", "reason": "the build is mended", "selection": map[string]string{"class": "bad_data"}}
	var job struct {
		JobID  string `json:"job_id"`
		People int
	}
	require.NoError(t, client.PostJSON(t.Context(), "/ops/replays", ask, &job))
	require.Equal(t, 1, job.People)
	run := map[string]any{"actor": "anna", "reason": "the build is mended"}
	var refused *ops.StatusError
	require.ErrorAs(t, client.PostJSON(t.Context(), "/ops/replays/"+job.JobID+"/run", run, nil), &refused)
	require.Equal(t, "confirm-people", refused.Kind)
	run["people"] = 1
	require.NoError(t, client.PostJSON(t.Context(), "/ops/replays/"+job.JobID+"/run", run, nil))
}

func TestReplayOfAServiceThatIsKilledAgainAndAgainWritesEachCommandOnce(t *testing.T) {
	t.Parallel()
	const orders = 40
	s := newStack(t)
	broker := testkit.Kafka(t, event.Topic, event.RedeliveryTopic("notify"))
	env := maps.Clone(s.env)
	maps.Copy(env, service.Env{
		"KAFKA_BROKERS": broker.Brokers(), "KAFKA_SESSION_TIMEOUT": "2s", "CONSUMER_ATTEMPTS": "4", "CONSUMER_BACKOFF": "10ms", "CONSUMER_MAX_BACKOFF": "50ms",
		"CONSUMER_RETRY_POLL":        "50ms",
		"CONSUMER_FAILURES_IN_A_ROW": "1000", "CONSUMER_HANDLER_TIMEOUT": "2m", "CONSUMER_LEASE": "5m",
		"HTTP_ADDR": testkit.FreeAddr(t), "OPS_ADDR": testkit.FreeAddr(t),
	})
	client := ops.Client{BaseURL: "http://" + env["OPS_ADDR"], Token: opsToken}
	start := func() *testkit.Process {
		p := testkit.Exec(t, "../..", env, "serve")
		p.WaitReady(env["OPS_ADDR"], soon)
		return p
	}
	count := func(from string) (n int) {
		t.Helper()
		require.NoError(t, s.db.QueryRow(t.Context(), "SELECT count(*) FROM "+from).Scan(&n))
		return n
	}
	exec := func(sql string) {
		t.Helper()
		_, err := s.db.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec("ALTER TABLE t_notification_command ADD CONSTRAINT bad_build CHECK (text = '') NOT VALID")
	p := start()
	for i := range orders {
		testkit.Produce(t, broker.Brokers(), event.Topic, consumertest.Record(consumertest.Paid(fmt.Sprintf("O-%d", i), "ann")))
	}
	require.Eventually(t, func() bool { return count("t_dead_letter WHERE state = 'OPEN'") == orders }, soon, 50*time.Millisecond)
	exec("ALTER TABLE t_notification_command DROP CONSTRAINT bad_build")
	// The keys that would hide a second command are gone: the replay itself must not make one.
	exec("ALTER TABLE t_notification_command DROP CONSTRAINT notification_once")
	exec("ALTER TABLE t_notification_command ADD CONSTRAINT notification_once UNIQUE (command_id, created_at)")

	ask := map[string]any{"actor": "anna", "reason": "the build is mended", "selection": map[string]string{"class": "transient"}, "rate": 20, "people": orders}
	var job replay.Job
	require.NoError(t, client.PostJSON(t.Context(), "/ops/replays", ask, &job))
	delete(ask, "selection")
	require.NoError(t, client.PostJSON(t.Context(), "/ops/replays/"+job.JobID+"/run", ask, nil))
	for _, done := range []int{1, 8, 20, 30} {
		require.Eventually(t, func() bool { return count("t_notification_command") >= done }, soon, time.Millisecond)
		p.Kill()
		// What the server still does for the dead is over, and no claim of theirs is worth waiting for.
		exec("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database() AND application_name <> ''")
		exec("UPDATE t_message_consume SET lease_until = now() WHERE status = 'PROCESSING'")
		exec("UPDATE t_replay_item SET lease_until = now() WHERE state = 'CLAIMED'")
		p = start()
	}
	testkit.Eventually(t, soon, func() error {
		if n := count("t_replay_job WHERE state = 'DONE'"); n != 1 {
			return fmt.Errorf("the job is not done: %d commands", count("t_notification_command"))
		}
		return nil
	})
	require.Equal(t, orders, count("t_notification_command"))
	require.Equal(t, orders, count("(SELECT DISTINCT event_id FROM t_notification_command) e"))
	require.Equal(t, orders, count("t_replay_item WHERE result = 'applied'"))
	p.Kill()
}
