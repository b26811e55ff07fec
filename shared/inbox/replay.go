package inbox

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"example.com/paycast/shared/event"
)

// LetterDelivery is the message of a letter once more, as Release would give it to the lane. The error wraps ErrNoLetter,
// ErrUnreadable when this build cannot read it, or ErrAltered.
func LetterDelivery(ctx context.Context, db *gorm.DB, group string, id int64) (Letter, Delivery, error) {
	row, err := open(db.WithContext(ctx), group, id)
	if err != nil {
		return Letter{}, Delivery{}, err
	}
	d, err := row.intact(group)
	return row.Letter, d, err
}

// ReleaseFor is Release for a replay. The message has one attempt: still bad, it is a dead letter again at once.
func ReleaseFor(ctx context.Context, tx *gorm.DB, group string, id int64, replayID string, why Decision) error {
	return release(ctx, tx, group, id, replayID, why)
}

const forgetDead = `DELETE FROM t_message_consume WHERE consumer_group = @group AND event_id = @event_id AND status = 'DEAD'`

// Forget makes Once run for an event whose row is DEAD. It is for transactions that are rolled back.
func Forget(ctx context.Context, tx *gorm.DB, d Delivery) error {
	err := turn(ctx, func(ctx context.Context) error { return lock(tx.WithContext(ctx), d.Group, d.Event.AggregateID) })
	if err != nil {
		return err
	}
	if err := tx.WithContext(ctx).Exec(forgetDead, d.place()).Error; err != nil {
		return fmt.Errorf("setting a dead row aside: %w", err)
	}
	return nil
}

// ErrNotApplied says that the log has no such event as applied, or has it with another body.
var ErrNotApplied = errors.New("the consume log does not have this event, with this body, as applied")

const reapplyRow = `
UPDATE t_message_consume
SET status = 'RETRY', outcome = NULL, result_ref = NULL, retry_count = 0, next_retry_at = now(), replay_id = @replay, updated_at = now()
WHERE consumer_group = @group AND event_id = @event_id AND request_hash = @hash AND status = 'SUCCESS' AND outcome = 'applied'`

// Reapply gives an applied event to the lane again, because its effect was lost. Whether that happens once depends on
// the effect's own unique key and no longer on the log. The hash in the log vouches for the record: another body than
// the one that was applied is refused.
func Reapply(ctx context.Context, tx *gorm.DB, group string, r event.Record, replayID string) error {
	e, err := event.Decode(r)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	tx = tx.WithContext(ctx)
	if err := lock(tx, group, e.AggregateID); err != nil {
		return err
	}
	d := Delivery{Group: group, Event: e, Record: r}
	args := d.place()
	args["replay"] = replayID
	if err := tx.Exec(bringBack, args).Error; err != nil {
		return fmt.Errorf("bringing an archived row back: %w", err)
	}
	changed := tx.Exec(reapplyRow, args)
	if changed.Error != nil {
		return fmt.Errorf("resetting an applied row: %w", changed.Error)
	}
	if changed.RowsAffected == 0 {
		return ErrNotApplied
	}
	return keepMessage(tx, d, Trouble{Class: ClassWaiting, Code: "reapplied", Text: "its effect was lost; an operator applies it again"})
}
