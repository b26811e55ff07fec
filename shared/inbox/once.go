package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/postgres"
)

// Once runs fn at most once with success for an event and a group, whatever else delivers the same event at the same
// time.
//
// It must be called inside the transaction that commits fn's effect; any other handle is refused. fn returns Applied,
// Superseded or Ignored. Its error is passed on, and the caller rolls back: then neither row nor effect is there. The
// other outcomes are recorded in tx and need its commit as well.
//
// FLOW 6/9
func Once(ctx context.Context, tx *gorm.DB, d Delivery, fn func(tx *gorm.DB) (Outcome, error)) (Outcome, error) {
	tx = tx.WithContext(ctx)
	if out, err := begin(ctx, tx, d); out != "" || err != nil {
		return out, err
	}
	switch by, err := heldBy(tx, d); {
	case err != nil:
		return "", err
	case by != "":
		return Waiting, hold(tx, d, by)
	}
	out, err := fn(tx)
	if err != nil {
		return "", err
	}
	return out, finish(tx, d, StatusSuccess, out)
}

// Nothing stands in the way of a delivery when its row is not there, or is claimed by it, and no earlier version of its
// aggregate is unfinished.
const isClear = `
SELECT NOT EXISTS (
    SELECT FROM t_message_consume
    WHERE consumer_group = @group AND event_id = @event_id AND (status, owner_token) IS DISTINCT FROM ('PROCESSING', @token))
AND NOT EXISTS (
    SELECT FROM t_message_consume
    WHERE consumer_group = @group AND aggregate_id = @aggregate AND aggregate_version < @version
      AND status IN ('PROCESSING', 'RETRY', 'WAITING', 'DEAD') AND NOT skipped)`

// Clear looks whether Once would run its function now. It decides nothing: use it only before a write that is safe to
// repeat, and let Once have the last word.
func Clear(ctx context.Context, db *gorm.DB, d Delivery) (bool, error) {
	var clear bool
	if err := db.WithContext(ctx).Raw(isClear, d.place()).Scan(&clear).Error; err != nil {
		return false, fmt.Errorf("looking into the consume log: %w", err)
	}
	return clear, nil
}

// The lock comes before everything that is read: a statement that waited for it would look at the time before.
// It makes deliveries of one aggregate take turns, whether they come from a partition, from the lane, or from a member
// that has lost the partition and does not know it yet.
const lockAggregate = `SELECT pg_advisory_xact_lock(hashtextextended(@lock, 0))`

// Insert first, look afterwards. Looking first lets two deliveries both find nothing. A conflict is no error here, so
// the transaction stays usable; RowsAffected alone tells whether the row is ours.
const insertRow = `
INSERT INTO t_message_consume
    (consumer_group, event_id, event_type, aggregate_id, aggregate_version, request_hash,
     status, owner_token, lease_until, topic, partition, "offset")
VALUES (@group, @event_id, @event_type, @aggregate, @version, @hash, 'PROCESSING', @token, now(), @topic, @partition, @offset)
ON CONFLICT (consumer_group, event_id) DO NOTHING`

// A claim that has been taken over finds nothing.
const lockClaimed = `
SELECT event_id FROM t_message_consume
WHERE consumer_group = @group AND event_id = @event_id AND status = 'PROCESSING' AND owner_token = @token
FOR UPDATE`

// ErrNotBegun says that a delivery did not get its turn in time: another one of the same aggregate, or of the same
// event, is under way in an open transaction. It says nothing about the message, of which nothing has been tried.
var ErrNotBegun = errors.New("another delivery of the same order is under way")

// turn is a part of a transaction in which others may be waited for. It takes at most half of the time that ctx has
// left: a handler that began with the rest of a second would be blamed for the others' slowness.
func turn(ctx context.Context, wait func(ctx context.Context) error) error {
	if deadline, bounded := ctx.Deadline(); bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	err := wait(ctx)
	// 55P03: lock_timeout; 57014: statement_timeout, or an operator who has cancelled the wait.
	if code := postgres.Code(err); code == "55P03" || code == "57014" || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrNotBegun, err)
	}
	return err
}

// begin makes the row PROCESSING and ours, or says why not.
func begin(ctx context.Context, tx *gorm.DB, d Delivery) (out Outcome, err error) {
	err = turn(ctx, func(ctx context.Context) error {
		out, err = insert(tx.WithContext(ctx), d)
		return err
	})
	return out, err
}

func insert(tx *gorm.DB, d Delivery) (Outcome, error) {
	if err := lock(tx, d.Group, d.Event.AggregateID); err != nil {
		return "", err
	}
	if d.Claimed {
		var mine []string
		if err := tx.Raw(lockClaimed, d.place()).Scan(&mine).Error; err != nil {
			return "", fmt.Errorf("locking the claimed row: %w", err)
		}
		if len(mine) == 0 {
			return "", ErrFenced
		}
		return "", nil
	}
	inserted := tx.Exec(insertRow, d.place())
	if inserted.Error != nil {
		return "", fmt.Errorf("inserting the consume log row: %w", inserted.Error)
	}
	if inserted.RowsAffected == 0 {
		return compare(tx, d)
	}
	return archived(tx, d)
}

func lock(tx *gorm.DB, group, aggregate string) error {
	if !postgres.InTx(tx) {
		return ErrNoTransaction
	}
	if err := tx.Exec(lockAggregate, map[string]any{"lock": group + "/" + aggregate}).Error; err != nil {
		return fmt.Errorf("locking the aggregate: %w", err)
	}
	return nil
}

// first is what the log knows of an event that arrives again.
type first struct {
	RequestHash string
	Topic       string
	Partition   int32
	Offset      int64
}

const selectFirst = `
SELECT request_hash, topic, partition, "offset" FROM t_message_consume
WHERE consumer_group = @group AND event_id = @event_id`

// compare tells a repetition from another fact under the same id. The row that came first stays as it is either way.
func compare(tx *gorm.DB, d Delivery) (Outcome, error) {
	var f first
	if err := tx.Raw(selectFirst, d.place()).Take(&f).Error; err != nil {
		return "", fmt.Errorf("reading the consume log row: %w", err)
	}
	return f.against(tx, d)
}

func (f first) against(tx *gorm.DB, d Delivery) (Outcome, error) {
	if f.RequestHash == d.Event.Hash() {
		return Duplicate, nil
	}
	return Conflict, writeLetter(tx, d, Trouble{
		Class: ClassConflict, Code: "hash_mismatch", Text: "the same event id came with another body",
	}, &f, false)
}

// The nearest unfinished version before mine. Nearest, so that each finished row wakes exactly the next one.
const selectEarlier = `
SELECT event_id FROM t_message_consume
WHERE consumer_group = @group AND aggregate_id = @aggregate AND aggregate_version < @version
  AND status IN ('PROCESSING', 'RETRY', 'WAITING', 'DEAD') AND NOT skipped
ORDER BY aggregate_version DESC LIMIT 1`

func heldBy(tx *gorm.DB, d Delivery) (string, error) {
	var ids []string
	if err := tx.Raw(selectEarlier, d.place()).Scan(&ids).Error; err != nil {
		return "", fmt.Errorf("looking for earlier versions: %w", err)
	}
	if len(ids) == 0 {
		return "", nil
	}
	return ids[0], nil
}

// One statement finishes the row and wakes what waits in the aggregate: rows that this one held, and rows whose
// condition this event may have fulfilled. Waking is safe because both sides hold the aggregate's lock.
const finishRow = `
WITH done AS (
    UPDATE t_message_consume
    SET status = @status, outcome = @outcome, result_ref = nullif(@result, ''), owner_token = NULL, lease_until = NULL,
        retry_count = retry_count - @counted, updated_at = now()
    WHERE consumer_group = @group AND event_id = @event_id AND status = 'PROCESSING' AND owner_token = @token
    RETURNING event_id),
woken AS (
    UPDATE t_message_consume SET held_by = NULL, next_retry_at = now(), updated_at = now()
    WHERE consumer_group = @group AND aggregate_id = @aggregate AND status = 'WAITING'
      AND (held_by IS NULL OR held_by = @event_id)),
cleared AS (
    DELETE FROM t_message_retry WHERE consumer_group = @group AND event_id = @event_id AND @counted = 1)
SELECT event_id FROM done`

func finish(tx *gorm.DB, d Delivery, s Status, out Outcome) error {
	args := d.place()
	args["status"], args["outcome"], args["result"] = string(s), string(out), d.Result
	var done []string
	if err := tx.Raw(finishRow, args).Scan(&done).Error; err != nil {
		return fmt.Errorf("finishing the consume log row: %w", err)
	}
	if len(done) == 0 {
		return ErrFenced
	}
	return nil
}
