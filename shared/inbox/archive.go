package inbox

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"example.com/paycast/shared/archive"
	"example.com/paycast/shared/event"
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

// archived says what an archived row means for a delivery, or nothing. The topic of all groups cannot bring what is
// archived, as the window is longer than Kafka's retention, so only the other roads pay for the look.
func archived(tx *gorm.DB, d Delivery) (Outcome, error) {
	if d.Record.Topic == event.Topic {
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
	return f.against(tx, d)
}

const bringBack = `
WITH back AS (
    DELETE FROM t_message_consume_archive WHERE consumer_group = @group AND event_id = @event_id
    RETURNING ` + archivedColumns + `)
INSERT INTO t_message_consume (` + archivedColumns + `) SELECT ` + archivedColumns + ` FROM back`
