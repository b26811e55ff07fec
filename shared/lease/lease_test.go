package lease

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var rule = Rule{Lease: 15 * time.Second, Deadline: 5 * time.Second, Margin: 2 * time.Second}

func TestLeaseWithoutRoomForOnePieceOfWorkIsRefused(t *testing.T) {
	t.Parallel()
	require.NoError(t, rule.Validate())
	require.ErrorContains(t, Rule{Lease: 7 * time.Second, Deadline: 5 * time.Second, Margin: 2 * time.Second}.Validate(),
		"lease 7s is too short: deadline 5s + margin 2s = 7s")
	require.Error(t, Rule{Lease: time.Second}.Validate())
}

func TestWorkIsBegunOnlyIfItEndsWithinTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := rule.Begin("relay-1")
		require.True(t, h.MayBegin())
		time.Sleep(8*time.Second - time.Nanosecond) // the bubble's clock, not the wall's
		require.True(t, h.MayBegin())
		time.Sleep(time.Nanosecond)
		require.False(t, h.MayBegin(), "5 s of work and 2 s of settling would end with the lease")
		require.Equal(t, 7*time.Second, time.Until(h.End()))
		require.Equal(t, 8*time.Second, time.Since(h.Begun()))
	})
}

func TestEveryClaimHasATokenOfItsOwnThatFitsTheColumn(t *testing.T) {
	t.Parallel()
	a, b := rule.Begin("relay-1"), rule.Begin("relay-1")
	require.NotEqual(t, a.Token, b.Token)
	require.True(t, strings.HasPrefix(a.Token, "relay-1/"))
	require.LessOrEqual(t, len(rule.Begin(strings.Repeat("x", 200)).Token), 64)
}

func TestClaimUnderWayOutlivesTheSignalByTheMarginAndNoLonger(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	claiming, done := Rule{Margin: time.Hour}.Claiming(ctx)
	short, doneShort := Rule{Margin: time.Millisecond}.Claiming(ctx)
	defer doneShort()
	stop()
	<-short.Done()
	require.NoError(t, claiming.Err())
	done()
	require.Error(t, claiming.Err())
}
