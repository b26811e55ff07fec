package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/archive"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
)

const archivedColumns = `consumer_group, event_id, event_type, aggregate_id, aggregate_version, request_hash, status, outcome, result_ref,
    retry_count, replay_id, topic, partition, "offset", first_received_at, updated_at`

// Archive moves rows of the group that have been finished for longer than the window. What is unfinished or DEAD never
// moves, however old.
func Archive(ctx context.Context, db *gorm.DB, group string, keep archive.Retention) (int, error) {
	return archive.Move(ctx, db, keep, archive.Rows{
		From: "t_message_consume", To: "t_message_consume_archive", Columns: archivedColumns, Key: "event_id",
		Scope: "consumer_group = @group", Args: map[string]any{"group": group},
		Final: `status IN ('SUCCESS', 'REJECTED') AND first_received_at < now() - make_interval(secs => @window)
            AND updated_at < now() - make_interval(secs => @window)`,
	})
}

const selectArchived = `
SELECT request_hash, topic, partition, "offset" FROM t_message_consume_archive
WHERE consumer_group = @group AND event_id = @event_id`

// MayBeArchived is false for most deliveries, which then need no look: what is younger than any window on the topic of all
// groups. An old event may come there as well, when its row of the outbox is released late.
func MayBeArchived(d Delivery) bool {
	return d.Record.Topic != event.Topic || time.Since(d.Event.Time) > youngestArchived
}

// youngestArchived is below every window, which is no less than Kafka's retention, by more than clocks differ.
const youngestArchived = kafka.Retention - time.Hour

// The row of a delivery whose event is archived already. It is taken back, or the event would be in both tables.
const takeBack = `
DELETE FROM t_message_consume WHERE consumer_group = @group AND event_id = @event_id AND status = 'PROCESSING' AND owner_token = @token`

// archived says what an archived row means for a delivery whose own row has just been inserted, or nothing. Only after the
// insert, which waits for an archiver that is moving the row: a look before it would miss the copy.
func archived(tx *gorm.DB, d Delivery) (Outcome, error) {
	if !MayBeArchived(d) {
		return "", nil
	}
	var f first
	err := tx.Raw(selectArchived, d.place()).Take(&f).Error
	switch {
	case errors.Is(err, gorm.ErrRecordNotFound):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("looking into the archive of the consume log: %w", err)
	}
	if err := tx.Exec(takeBack, d.place()).Error; err != nil {
		return "", fmt.Errorf("taking back the row of an archived event: %w", err)
	}
	return f.against(tx, d)
}

const selectGivenUp = `
SELECT EXISTS (
    SELECT FROM t_message_consume
    WHERE consumer_group = @group AND aggregate_id = @aggregate AND event_type = @type AND status = 'REJECTED'
    UNION ALL
    SELECT FROM t_message_consume_archive
    WHERE consumer_group = @group AND aggregate_id = @aggregate AND event_type = @type AND status = 'REJECTED')`

// GivenUp tells whether the group has given up an event of this type and aggregate, lately or long ago: refused by the
// business, or discarded or erased by an operator.
func GivenUp(ctx context.Context, tx *gorm.DB, group, aggregate, eventType string) (given bool, err error) {
	args := map[string]any{"group": group, "aggregate": aggregate, "type": eventType}
	if err := tx.WithContext(ctx).Raw(selectGivenUp, args).Scan(&given).Error; err != nil {
		return false, fmt.Errorf("looking for what was given up: %w", err)
	}
	return given, nil
}

const bringBack = `
WITH back AS (
    DELETE FROM t_message_consume_archive WHERE consumer_group = @group AND event_id = @event_id
    RETURNING ` + archivedColumns + `)
INSERT INTO t_message_consume (` + archivedColumns + `) SELECT ` + archivedColumns + ` FROM back`
