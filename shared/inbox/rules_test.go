package inbox

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWaitingForOthersLeavesAHandlerHalfOfItsTime(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	deadline, _ := ctx.Deadline()
	require.NoError(t, turn(ctx, func(ctx context.Context) error {
		until, bounded := ctx.Deadline()
		require.True(t, bounded)
		require.Greater(t, deadline.Sub(until), 20*time.Minute)
		return nil
	}))
	require.NoError(t, turn(t.Context(), func(ctx context.Context) error {
		_, bounded := ctx.Deadline()
		require.False(t, bounded, "who has no deadline waits")
		return nil
	}))
}
