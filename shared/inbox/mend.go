package inbox

import (
	"context"
	"fmt"

	"gorm.io/gorm"
)

// What holds a row is an unfinished earlier version of its aggregate, and its end wakes the row. A row that is held by
// anything else waits for ever; somebody's hand, or a restore, did that. A row that another transaction has locked is passed
// over. The holder is looked up by a subquery and not by NOT EXISTS, over which a planner without statistics takes seconds.
const freeStray = `
WITH slice AS MATERIALIZED (
    SELECT event_id FROM t_message_consume
    WHERE consumer_group = @group AND held_by IS NOT NULL AND event_id > @after
    ORDER BY event_id LIMIT @slice),
stray AS MATERIALIZED (
    SELECT event_id FROM t_message_consume h
    WHERE consumer_group = @group AND held_by IS NOT NULL AND event_id = ANY(ARRAY(SELECT event_id FROM slice)) AND (
        SELECT true FROM t_message_consume f
        WHERE f.consumer_group = h.consumer_group AND f.event_id = h.held_by AND f.aggregate_id = h.aggregate_id
          AND f.aggregate_version < h.aggregate_version
          AND f.status IN ('PROCESSING', 'RETRY', 'WAITING', 'DEAD') AND NOT f.skipped) IS NULL
    FOR UPDATE SKIP LOCKED),
freed AS (
    UPDATE t_message_consume SET held_by = NULL, next_retry_at = now(), updated_at = now()
    WHERE consumer_group = @group AND event_id = ANY(ARRAY(SELECT event_id FROM stray))
    RETURNING event_id)
SELECT (SELECT count(*) FROM freed) AS freed,
    coalesce((SELECT max(event_id) FROM slice HAVING count(*) = @slice), '') AS next`

// mendSlice bounds what a call of Mend costs while very much is held.
const mendSlice = 1000

// Mend makes held rows due that wait for nothing: what holds them is gone, finished, skipped, or not in front of them. It
// looks at a thousand held rows behind the event id after, and tells where the next call goes on; "" is the beginning. One
// freed too many does no harm: Once holds it again, and counts nothing.
func Mend(ctx context.Context, db *gorm.DB, group, after string) (freed int, next string, err error) {
	var done struct {
		Freed int
		Next  string
	}
	err = db.WithContext(ctx).Raw(freeStray, map[string]any{"group": group, "after": after, "slice": mendSlice}).Scan(&done).Error
	if err != nil {
		return 0, after, fmt.Errorf("freeing what waits for nothing: %w", err)
	}
	return done.Freed, done.Next, nil
}
