package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/postgres"
)

// together delivers ds to a handler that writes one effect for each, and returns how often the transaction ran.
func (l log) together(ds ...inbox.Delivery) (fresh []bool, runs int64) {
	l.t.Helper()
	err := postgres.Transaction(context.Background(), l.db, func(tx *gorm.DB) (err error) {
		runs++
		fresh, err = inbox.Together(context.Background(), tx, ds, func(tx *gorm.DB, ds []inbox.Delivery) ([]inbox.Outcome, error) {
			outcomes := make([]inbox.Outcome, len(ds))
			for i, d := range ds {
				outcomes[i] = inbox.Applied
				if err := tx.Exec("INSERT INTO t_effect VALUES (?)", d.Event.ID).Error; err != nil {
					return nil, err
				}
			}
			return outcomes, nil
		})
		return err
	})
	if err != nil {
		l.t.Error(err)
	}
	return fresh, runs
}

func TestTogetherTakesWhatIsPlainNewAndLeavesTheRest(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	_, err := l.fail(delivery(2), inbox.Failure{Outcome: inbox.Retry, After: time.Hour})
	require.NoError(t, err)
	fresh, _ := l.together(delivery(1), delivery(2), otherBody(delivery(1)), delivery(1), delivery(3))
	require.Equal(t, []bool{true, false, false, false, false}, fresh, "version 3 is behind version 2, which is to be tried again")
	var rows int64
	require.NoError(t, l.db.Raw("SELECT count(*) FROM t_message_consume").Scan(&rows).Error)
	require.EqualValues(t, 2, rows, "what is not taken leaves no row")
	out, ran, err := l.once(otherBody(delivery(1)), nil)
	require.NoError(t, err)
	require.Equal(t, inbox.Conflict, out, "the row is the first copy's")
	require.False(t, ran)
}

func TestTogetherWakesWhatWaitsForAnotherEventOfTheOrder(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	_, err := l.fail(delivery(5), inbox.Failure{Outcome: inbox.Waiting, After: time.Hour})
	require.NoError(t, err)
	l.together(delivery(1))
	d, err := inbox.Claim(t.Context(), l.db, "g", rule)
	require.NoError(t, err)
	require.NotNil(t, d, "due at once")
	require.Equal(t, delivery(5).Event.ID, d.Event.ID)
}

// Without the order of the locks this dies of deadlocks: each costs the database a second to find, and a run.
func TestBatchesWithTheSameOrdersTheOtherWayRoundDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	const rounds, orders = 10, 300
	var extra atomic.Int64
	var both sync.WaitGroup
	for side := range 2 {
		both.Go(func() {
			for round := range rounds {
				ds := make([]inbox.Delivery, orders)
				for i := range ds {
					ds[i] = delivery(int64(1 + round*2 + side))
					ds[i].Event.AggregateID = fmt.Sprintf("o-%d", i)
					ds[i].Event.ID = fmt.Sprintf("event-%d-%d-%d", i, round, side)
				}
				if side == 1 {
					slices.Reverse(ds)
				}
				_, runs := l.together(ds...)
				extra.Add(runs - 1)
			}
		})
	}
	both.Wait()
	require.Zero(t, extra.Load(), "transactions that had to run again")
}
