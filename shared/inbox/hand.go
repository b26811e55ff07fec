package inbox

import (
	"context"
	"fmt"

	"gorm.io/gorm"
)

// A message that the log knows will run nothing, so it is not noted. One more than the largest number is an error, and would
// stop the partition.
const takeInHand = `
INSERT INTO t_message_in_hand AS h (consumer_group, topic, partition, event_id, times)
SELECT @group, @topic, @partition, @event_id, 1
WHERE NOT EXISTS (SELECT FROM t_message_consume WHERE consumer_group = @group AND event_id = @event_id)
ON CONFLICT (consumer_group, topic, partition) DO UPDATE
SET event_id = excluded.event_id, times = CASE h.event_id WHEN excluded.event_id THEN least(h.times, 1000000000) ELSE 0 END + 1, updated_at = now()
RETURNING times`

// Take notes, in a commit of its own, that the handler is about to run for a message of a partition, and tells how
// often that was noted in a row: above 1, a process has ended with it in hand. 0: the log knows the event already.
func Take(ctx context.Context, db *gorm.DB, d Delivery) (times int, err error) {
	if err := db.WithContext(ctx).Raw(takeInHand, d.place()).Scan(&times).Error; err != nil {
		return 0, fmt.Errorf("noting what is in hand: %w", err)
	}
	return times, nil
}

const putDown = `
UPDATE t_message_in_hand SET times = times - 1, updated_at = now()
WHERE consumer_group = @group AND topic = @topic AND partition = @partition AND event_id = @event_id AND times > 0`

// PutDown takes a note of Take back: the process lives, and nothing was decided about the message. After a decision
// there is no need, for the log knows the event then.
func PutDown(ctx context.Context, db *gorm.DB, d Delivery) error {
	if err := db.WithContext(ctx).Exec(putDown, d.place()).Error; err != nil {
		return fmt.Errorf("taking back what was noted as in hand: %w", err)
	}
	return nil
}
