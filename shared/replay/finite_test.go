package replay_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/replay"
)

func TestTimesAndSelectionsThatNoProgramReadsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.bare(&atomic.Int64{})
	r.Source = replay.Payment{Client: ops.Client{BaseURL: w.source, Token: token}}
	var job replay.Job
	for range 2 {
		var err error
		job, err = r.Plan(t.Context(), anna, replay.Selection{EventIDs: []string{w.events("o", 1)[0].ID}}, 0, false)
		require.NoError(t, err)
	}
	for _, edit := range []string{
		"t_replay_job SET next_at = %s", "t_replay_job SET created_at = %s", "t_replay_job SET updated_at = %s",
		"t_replay_job SET started_at = %s", "t_replay_job SET state = 'CANCELED', ended_at = %s", "t_replay_item SET updated_at = %s",
		"t_replay_item SET state = 'BEGUN', begun_at = %s", "t_replay_item SET state = 'CLAIMED', owner_token = 'x', lease_until = %s",
	} {
		for _, value := range []string{"'infinity'", "'-infinity'", "'0001-01-01 BC'", "'294000-01-01'"} {
			statement := fmt.Sprintf("UPDATE "+edit, value)
			require.ErrorContains(t, w.db.Exec(statement).Error, "_times", statement)
		}
	}
	require.ErrorContains(t, w.db.Exec("UPDATE t_replay_job SET selection = 'all of it'").Error, "json")
	// What is left is read by everybody.
	jobs, err := r.List(t.Context())
	require.NoError(t, err)
	require.Len(t, jobs, 2)
	items, err := r.Contents(t.Context(), job.JobID, 0, 10)
	require.NoError(t, err)
	require.Len(t, items, 1)
}
