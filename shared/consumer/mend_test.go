package consumer_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
)

func TestAMessageThatWaitsForNothingIsApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.run(consumer.InTransaction(func(_ context.Context, tx *gorm.DB, e event.Event) error {
		if e.Type == event.PaymentSucceeded {
			return consumer.BadData(errors.New("no"))
		}
		return effect(tx, e)
	}), nil)
	orders := []string{"gone", "done", "skipped", "moved", "with reason"}
	for _, order := range orders {
		w.send(paid(order), consumertest.Canceled(order, "ann"))
	}
	w.eventually("all cancellations are held", func() bool { return w.rows("WAITING") == 5 })
	for _, edit := range []string{
		"DELETE FROM t_message_consume WHERE status = 'DEAD' AND aggregate_id = 'gone'",
		"UPDATE t_message_consume SET status = 'SUCCESS', outcome = 'applied' WHERE status = 'DEAD' AND aggregate_id = 'done'",
		"UPDATE t_message_consume SET skipped = true WHERE status = 'DEAD' AND aggregate_id = 'skipped'",
		"UPDATE t_message_consume SET aggregate_version = 9 WHERE status = 'DEAD' AND aggregate_id = 'moved'",
		// This one is in front of nothing, and there is something in front of it.
		"UPDATE t_message_consume SET held_by = event_id WHERE status = 'WAITING' AND aggregate_id = 'with reason'",
	} {
		require.NoError(t, w.db.Exec(edit).Error)
	}
	for _, order := range orders[:4] {
		w.eventually(order, func() bool { return len(w.effects(order)) == 1 })
	}
	w.eventually("what waits with reason waits for what is in front of it", func() bool {
		return w.count("SELECT count(*) FROM t_message_consume WHERE status = 'WAITING' AND held_by = ? AND retry_count = 0", paid("with reason").ID) == 1
	})
	require.Empty(t, w.effects("with reason"))
}
