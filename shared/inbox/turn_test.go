package inbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/inbox"
)

// underWay leaves a transaction open in which d has been handled. end commits it.
func (l log) underWay(d inbox.Delivery) (end func()) {
	l.t.Helper()
	tx := l.db.Begin()
	require.NoError(l.t, tx.Error)
	l.t.Cleanup(func() { tx.Rollback() })
	_, err := inbox.Once(l.t.Context(), tx, d, func(*gorm.DB) (inbox.Outcome, error) { return inbox.Applied, nil })
	require.NoError(l.t, err)
	return func() { require.NoError(l.t, tx.Commit().Error) }
}

func TestWhoWaitsInVainForItsTurnHasNotBegun(t *testing.T) {
	t.Parallel()
	sameOrder, sameEvent := delivery(1), delivery(1)
	sameOrder.Event.ID = "another event"
	sameEvent.Event.AggregateID = "another order" // so that the row is in the way and not the lock
	never := func(*gorm.DB) (inbox.Outcome, error) { return "", errors.New("it ran") }
	for what, first := range map[string]inbox.Delivery{"the lock of its order": sameOrder, "the row of its event": sameEvent} {
		for how, deliver := range map[string]func(ctx context.Context, tx *gorm.DB) error{
			"once": func(ctx context.Context, tx *gorm.DB) error {
				_, err := inbox.Once(ctx, tx, delivery(1), never)
				return err
			},
			"together": func(ctx context.Context, tx *gorm.DB) error {
				_, err := inbox.Together(ctx, tx, []inbox.Delivery{delivery(1)}, func(*gorm.DB, []inbox.Delivery) ([]inbox.Outcome, error) {
					return nil, errors.New("it ran")
				})
				return err
			},
			"fail": func(ctx context.Context, tx *gorm.DB) error {
				_, err := inbox.Fail(ctx, tx, delivery(1), inbox.Failure{Outcome: inbox.Dead})
				return err
			},
		} {
			t.Run(how+" behind "+what, func(t *testing.T) {
				t.Parallel()
				l := newLog(t)
				end := l.underWay(first)
				require.ErrorIs(t, l.tx(func(tx *gorm.DB) error {
					ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
					defer cancel()
					return deliver(ctx, tx)
				}), inbox.ErrNotBegun, "its own deadline")
				for _, setting := range []string{"lock_timeout", "statement_timeout"} {
					require.ErrorIs(t, l.tx(func(tx *gorm.DB) error {
						require.NoError(t, tx.Exec("SET LOCAL "+setting+" = '50ms'").Error)
						return deliver(t.Context(), tx)
					}), inbox.ErrNotBegun, setting)
				}
				end()
				err := l.tx(func(tx *gorm.DB) error { return deliver(t.Context(), tx) })
				require.NotErrorIs(t, err, inbox.ErrNotBegun, "then it is its turn")
			})
		}
	}
}
