package inbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/inbox"
)

func TestWhatIsInHandIsCountedUntilItIsPutDownOrAnotherTakesItsPlace(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	take := func(d inbox.Delivery) int {
		times, err := inbox.Take(t.Context(), l.db, d)
		require.NoError(t, err)
		return times
	}
	require.Equal(t, 1, take(delivery(1)))
	require.Equal(t, 2, take(delivery(1)))
	require.NoError(t, inbox.PutDown(t.Context(), l.db, delivery(1)))
	require.Equal(t, 2, take(delivery(1)))
	elsewhere := delivery(1)
	elsewhere.Record.Partition++
	require.Equal(t, 1, take(elsewhere), "each partition has its own")

	require.Equal(t, 1, take(delivery(2)), "there is progress")
	require.NoError(t, inbox.PutDown(t.Context(), l.db, delivery(1)), "of somebody who comes late")
	require.Equal(t, 2, take(delivery(2)))
	l.bring(2, inbox.StatusSuccess)
	require.Zero(t, take(delivery(2)), "the log knows it")
	l.bring(1, inbox.StatusDead)
	require.Zero(t, take(delivery(1)))
}
