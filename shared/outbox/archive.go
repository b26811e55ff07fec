package outbox

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"example.com/paycast/shared/archive"
	"example.com/paycast/shared/postgres"
)

// Retention is what an archive must not undercut.
type Retention = archive.Retention

// Archive moves sent rows older than the window, batch by batch, and returns how many. Each batch is copied, compared and
// deleted in one transaction: a row is in one place or the other, whenever the process ends. DEAD and unfinished rows
// never move. Any number may run at once, beside the relays.
func Archive(ctx context.Context, db *gorm.DB, r Retention) (moved int, err error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	if r.Batch == 0 {
		r.Batch = 1000
	}
	for {
		n := 0
		err := postgres.Transaction(ctx, db, func(tx *gorm.DB) (err error) {
			n, err = archiveBatch(tx, r)
			return err
		})
		if err != nil {
			return moved, fmt.Errorf("archiving outbox rows: %w", err)
		}
		if moved += n; n < r.Batch {
			return moved, nil
		}
	}
}

// pickOld locks a batch. Rows that another archiver has are skipped.
const pickOld = `
select event_id, to_char(date_trunc('month', created_at at time zone 'UTC'), 'YYYY-MM') as month
from t_outbox_event
where status = 'SENT' and created_at < now() - make_interval(secs => @window) and sent_at < now() - make_interval(secs => @window)
limit @batch
for update skip locked`

const archivedColumns = `event_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
  destination, message_key, payload, headers, broker_partition, broker_offset, created_at, sent_at`

const copyOld = `
insert into t_outbox_archive (` + archivedColumns + `)
select ` + archivedColumns + ` from t_outbox_event where event_id in @ids
on conflict (event_id, created_at) do nothing`

// digest is the number and the hash of rows, whatever their order on disk. An archived copy that was there before and
// says something else is found by it.
const digest = `
select count(*) || '/' || coalesce(md5(string_agg(md5(row(` + archivedColumns + `)::text), '' order by event_id)), '')
from %s where event_id in @ids`

func archiveBatch(tx *gorm.DB, r Retention) (int, error) {
	var old []struct{ EventID, Month string }
	if err := tx.Raw(pickOld, map[string]any{"window": r.Window.Seconds(), "batch": r.Batch}).Scan(&old).Error; err != nil || len(old) == 0 {
		return 0, err
	}
	ids, months := make([]string, len(old)), map[string]bool{}
	for i, row := range old {
		ids[i] = row.EventID
		months[row.Month] = true
	}
	for month := range months {
		if err := ensurePartition(tx, month); err != nil {
			return 0, err
		}
	}
	named := map[string]any{"ids": ids}
	if err := tx.Exec(copyOld, named).Error; err != nil {
		return 0, err
	}
	var source, copied string
	if err := tx.Raw(fmt.Sprintf(digest, "t_outbox_event"), named).Scan(&source).Error; err != nil {
		return 0, err
	}
	if err := tx.Raw(fmt.Sprintf(digest, "t_outbox_archive"), named).Scan(&copied).Error; err != nil {
		return 0, err
	}
	if source != copied {
		return 0, fmt.Errorf("the archive holds other rows under these ids (%s, expected %s); nothing is deleted", copied, source)
	}
	return len(ids), tx.Exec("delete from t_outbox_event where event_id in @ids", named).Error
}

// ensurePartition makes the partition of a month, "2026-01".
func ensurePartition(tx *gorm.DB, month string) error {
	return tx.Exec("select t_outbox_archive_partition(cast(? as date))", month+"-01").Error
}
