package notify_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/ops"
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
