package replay_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDryRunOfARehearsalIsRefusedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.start()
	w.letters("o", 1)
	w.mended.Store(true)
	job := w.plan(c, openLetters, 0)
	before := w.count("t_audit")
	err := c.PostJSON(t.Context(), "/ops/replays/"+job.JobID+"/rehearse?dry_run=true", body(nil), nil)
	refused(t, err, http.StatusBadRequest, "without dry_run")
	require.Equal(t, before, w.count("t_audit"))
	for _, verb := range []string{"run", "cancel"} {
		require.NoError(t, c.PostJSON(t.Context(), "/ops/replays/"+job.JobID+"/"+verb+"?dry_run=true", body(nil), nil))
	}
	require.Equal(t, before, w.count("t_audit"), "nor does a dry run of the others")
	require.NoError(t, c.PostJSON(t.Context(), "/ops/replays/"+job.JobID+"/rehearse?dry_run=false", body(nil), nil))
	require.Equal(t, before+1, w.count("t_audit"))
}
