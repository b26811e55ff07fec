package outbox

import (
	"context"

	"gorm.io/gorm"

	"example.com/paycast/shared/archive"
)

// Retention is what an archive must not undercut.
type Retention = archive.Retention

const archivedColumns = `event_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
  destination, message_key, payload, headers, broker_partition, broker_offset, created_at, sent_at`

// makePartitions asks for the partition of each month in a batch; the function belongs to who may make tables.
const makePartitions = `
select t_outbox_archive_partition(month)
from (select distinct date_trunc('month', created_at at time zone 'UTC')::date as month from t_outbox_event where event_id in @keys) m`

// Archive moves sent rows older than the window, batch by batch, and returns how many. DEAD and unfinished rows never
// move. Any number may run at once, beside the relays.
func Archive(ctx context.Context, db *gorm.DB, r Retention) (moved int, err error) {
	return archive.Move(ctx, db, r, archive.Rows{
		From: "t_outbox_event", To: "t_outbox_archive", Columns: archivedColumns, Key: "event_id", Scope: "true",
		Final: `status = 'SENT' and created_at < now() - make_interval(secs => @window)
            and sent_at < now() - make_interval(secs => @window)`,
		Prepare: makePartitions,
	})
}
