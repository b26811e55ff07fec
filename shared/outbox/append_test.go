package outbox

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

func appendStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, url: testkit.Postgres(t, Migrations)}
	var err error
	s.db, err = postgres.Open(t.Context(), s.url, "test")
	require.NoError(t, err)
	t.Cleanup(func() { postgres.Close(s.db) })
	return s
}

func (s *stage) rows() (n int64) {
	s.t.Helper()
	require.NoError(s.t, s.db.Table("t_outbox_event").Count(&n).Error)
	return n
}

func TestAppendOutsideATransactionIsRefused(t *testing.T) {
	t.Parallel()
	s := appendStage(t)
	require.ErrorIs(t, Append(t.Context(), s.db, created("O-1", 1)), ErrNoTransaction)
	require.Zero(t, s.rows())

	s.append(created("O-1", 1))
	require.EqualValues(t, 1, s.rows())
}

func TestRolledBackTransactionLeavesNoRow(t *testing.T) {
	t.Parallel()
	s := appendStage(t)
	boom := errors.New("the business said no")
	require.ErrorIs(t, postgres.Transaction(t.Context(), s.db, func(tx *gorm.DB) error {
		require.NoError(t, Append(t.Context(), tx, created("O-1", 1)))
		return boom
	}), boom)
	require.Zero(t, s.rows())
}

func TestSameEventOrVersionTwiceIsAUniqueViolation(t *testing.T) {
	t.Parallel()
	s := appendStage(t)
	s.append(created("O-1", 1))
	again := func(e event.Event) error {
		return postgres.Transaction(t.Context(), s.db, func(tx *gorm.DB) error { return Append(t.Context(), tx, e) })
	}
	require.True(t, postgres.IsUnique(again(created("O-1", 1)), "t_outbox_event_pkey"))
	other := created("O-1", 1)
	other.ID = "another"
	require.True(t, postgres.IsUnique(again(other), "t_outbox_event_aggregate"))
	require.EqualValues(t, 1, s.rows())
}

func TestWhatNoConsumerCouldReadIsRefusedWhileItCanBeRolledBack(t *testing.T) {
	t.Parallel()
	s := appendStage(t)
	for name, spoil := range map[string]func(*event.Event){
		"no id":            func(e *event.Event) { e.ID = "" },
		"no key":           func(e *event.Event) { e.AggregateID = "" },
		"unknown type":     func(e *event.Event) { e.Type = "Nonsense" },
		"no version":       func(e *event.Event) { e.AggregateVersion = 0 },
		"no payload":       func(e *event.Event) { e.Payload = nil },
		"payload with NUL": func(e *event.Event) { e.Payload = []byte("{\"a\":\"\x00\"}") },
		"payload not text": func(e *event.Event) { e.Payload = []byte{0xff, 0xfe} },
		"header injection": func(e *event.Event) { e.Source = "/payment\nce_id: E9" },
	} {
		e := created("O-1", 1)
		spoil(&e)
		err := postgres.Transaction(context.Background(), s.db, func(tx *gorm.DB) error { return Append(context.Background(), tx, e) })
		require.Error(t, err, name)
	}
	require.Zero(t, s.rows())
}

func TestConditionsOnTheCallersHandleDoNotReachAppend(t *testing.T) {
	t.Parallel()
	s := appendStage(t)
	require.NoError(t, s.db.Transaction(func(tx *gorm.DB) error {
		return Append(t.Context(), tx.Table("t_order").Where("order_no = ?", "O-9"), created("O-1", 1))
	}))
	require.EqualValues(t, 1, s.rows())
}

func TestTimesAndCountsThatNoProgramReadsAreRefused(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.append(created("O-1", 1))
	for _, column := range []string{"created_at", "next_retry_at"} {
		for _, value := range []string{"infinity", "-infinity", "0001-01-01 BC", "294000-01-01"} {
			_, err := s.sql.Exec(t.Context(), fmt.Sprintf("update t_outbox_event set %s = '%s'", column, value))
			require.ErrorContains(t, err, "t_outbox_event_times", "%s %s", column, value)
		}
	}
	_, err := s.sql.Exec(t.Context(), "update t_outbox_event set status = 'SENDING', owner_token = 'x', lease_until = 'infinity'")
	require.ErrorContains(t, err, "t_outbox_event_times")
	for _, column := range []string{"takeover_count", "retry_count"} {
		_, err := s.sql.Exec(t.Context(), fmt.Sprintf("update t_outbox_event set %s = 2147483647", column))
		require.ErrorContains(t, err, "t_outbox_event_counts", column)
	}
	s.run()
	s.eventually(1, "status = 'SENT'")
}
