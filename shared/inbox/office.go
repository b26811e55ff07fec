package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"example.com/paycast/shared/event"
)

// Why an operator's decision about a dead letter cannot be carried out.
var (
	ErrNoLetter      = errors.New("there is no such dead letter")
	ErrClosed        = errors.New("the dead letter is closed already; show it to see by whom and why")
	ErrNotReleasable = errors.New("a conflict is never applied; it can only be discarded")
	ErrUnreadable    = errors.New("this build cannot read the message either")
	ErrAltered       = errors.New("the letter does not hold the bytes that were received: somebody has changed the table; put the row back from a backup")
	ErrUnderWay      = errors.New("the event is finished or under way; there is nothing to release")
	ErrNotHolding    = errors.New("the message holds nobody")
)

// Decision is what an operator says about a dead letter, and stays with it.
type Decision struct {
	By     string `json:"by"`
	Reason string `json:"reason"`
}

// Contents are a letter's bytes as received. They may hold personal data.
type Contents struct {
	Key     []byte         `json:"key"`
	Payload []byte         `json:"payload"` // null is a tombstone
	Headers []event.Header `json:"headers"`
}

// letterRow is a letter as the office works with it.
type letterRow struct {
	Letter
	RecordKey, Headers, Payload []byte
}

// Show gives one letter and what it holds; without headers, where somebody has made them unreadable.
func Show(ctx context.Context, db *gorm.DB, group string, id int64) (Letter, Contents, error) {
	row, err := open(db.WithContext(ctx), group, id)
	if err != nil {
		return Letter{}, Contents{}, err
	}
	headers, _ := decodeHeaders(row.Headers)
	return row.Letter, Contents{row.RecordKey, row.Payload, headers}, nil
}

func open(db *gorm.DB, group string, id int64) (row letterRow, err error) {
	err = db.Table("t_dead_letter").Where("consumer_group = ? AND letter_id = ?", group, id).Take(&row).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return row, ErrNoLetter
	}
	if err != nil {
		return row, fmt.Errorf("reading a dead letter: %w", err)
	}
	return row, nil
}

// delivery is the letter's message once more. The error wraps ErrUnreadable or ErrAltered.
func (l letterRow) delivery(group string) (Delivery, error) {
	headers, err := decodeHeaders(l.Headers)
	if err != nil {
		return Delivery{}, fmt.Errorf("%w: %w", ErrAltered, err)
	}
	r := event.Record{Topic: l.Topic, Partition: l.Partition, Offset: l.Offset, Time: l.RecordTime.UTC(),
		Key: l.RecordKey, Value: l.Payload, Headers: headers}
	e, err := event.Decode(r)
	if err != nil {
		return Delivery{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return Delivery{Group: group, Event: e, Record: r}, nil
}

// intact is delivery for what will be handled: the hash that was taken when the record came vouches for its bytes. Of a
// message that could not be read any more in the lane it is the one in the log.
func (l letterRow) intact(group string) (Delivery, error) {
	d, err := l.delivery(group)
	if err != nil || recordHash(d.Record) == l.PayloadHash {
		return d, err
	}
	if l.EventID == nil || d.Event.ID != *l.EventID || d.Event.Hash() != l.PayloadHash {
		return d, ErrAltered
	}
	return d, nil
}

// A dead row begins anew, with all of its attempts.
const reviveRow = `
UPDATE t_message_consume SET status = 'RETRY', skipped = false, retry_count = 0, next_retry_at = now(),
    replay_id = nullif(@replay, ''), updated_at = now()
WHERE consumer_group = @group AND event_id = @event_id AND request_hash = @hash AND status = 'DEAD'`

// What could not be read had no row.
const releaseRow = `
INSERT INTO t_message_consume
    (consumer_group, event_id, event_type, aggregate_id, aggregate_version, request_hash, status, next_retry_at, replay_id,
     topic, partition, "offset")
SELECT @group, @event_id, @event_type, @aggregate, @version, @hash, 'RETRY', now(), nullif(@replay, ''), @topic, @partition, @offset
WHERE NOT EXISTS (SELECT FROM t_message_consume_archive WHERE consumer_group = @group AND event_id = @event_id)
ON CONFLICT (consumer_group, event_id) DO NOTHING`

// Release gives a letter's message back to the group's own retry lane, with its id and its bytes. Nothing is sent to
// Kafka: other groups have nothing to do with it. What is finished meanwhile is not done again.
func Release(ctx context.Context, tx *gorm.DB, group string, id int64, why Decision) error {
	return release(ctx, tx, group, id, "", why)
}

func release(ctx context.Context, tx *gorm.DB, group string, id int64, replayID string, why Decision) error {
	tx = tx.WithContext(ctx)
	row, err := open(tx, group, id)
	if err != nil {
		return err
	}
	switch {
	case row.State != "OPEN": // whatever is wrong with its message, there is nothing left to do about it
		return ErrClosed
	case row.ErrorClass == ClassConflict:
		return ErrNotReleasable
	}
	d, err := row.intact(group)
	if err != nil {
		return err
	}
	if err := lock(tx, group, d.Event.AggregateID); err != nil {
		return err
	}
	if err := closeLetter(tx, group, id, "RELEASED", why); err != nil {
		return err
	}
	args := d.place()
	args["replay"] = replayID
	for _, statement := range []string{reviveRow, releaseRow} {
		result := tx.Exec(statement, args)
		if result.Error != nil {
			return fmt.Errorf("releasing a dead letter: %w", result.Error)
		}
		if result.RowsAffected == 1 {
			return keepMessage(tx, d, Trouble{Class: row.ErrorClass, Code: "released", Text: "released by an operator"})
		}
	}
	return ErrUnderWay
}

// The dead row of a letter has its id and its place. What somebody has changed in the letter is made up for by the other:
// a row that no open letter fits in both belongs to one that fits in either, so none is left without its letter. The place
// alone is not enough where a row has a letter of its own: a topic that is made anew has the same places again.
const itsRow = `
WHERE c.consumer_group = @group AND c.status = 'DEAD' AND (
    c.event_id = @event_id AND (c.topic, c.partition, c."offset") = (@topic, @partition, @offset)
    OR (c.event_id = @event_id OR (c.topic, c.partition, c."offset") = (@topic, @partition, @offset)) AND NOT EXISTS (
        SELECT FROM t_dead_letter l
        WHERE l.consumer_group = c.consumer_group AND l.event_id = c.event_id
          AND (l.topic, l.partition, l."offset") = (c.topic, c.partition, c."offset")
          AND l.state = 'OPEN' AND l.error_class <> 'conflict'))`

// What the letter says comes as well: its lock must be had before anybody looks whether there is a dead row. In the order
// in which batches lock.
const itsAggregates = `
SELECT aggregate_id FROM (
    SELECT aggregate_id FROM t_dead_letter WHERE consumer_group = @group AND letter_id = @id AND aggregate_id IS NOT NULL
    UNION SELECT c.aggregate_id FROM t_message_consume c` + itsRow + `) a
ORDER BY aggregate_id COLLATE "C"`

// Discarding ends a dead row and wakes the version that it held.
const discardRow = `
UPDATE t_message_consume c SET status = 'REJECTED', outcome = 'discarded', skipped = false, updated_at = now()` + itsRow + `
RETURNING c.event_id, c.aggregate_id`

// Discard ends a letter for good: its event will not be applied. Later versions that it held go on.
func Discard(ctx context.Context, tx *gorm.DB, group string, id int64, why Decision) error {
	return settle(tx.WithContext(ctx), group, id, discardRow, func(int) error {
		return closeLetter(tx.WithContext(ctx), group, id, "DISCARDED", why)
	})
}

const skipRow = `
UPDATE t_message_consume c SET skipped = true, updated_at = now()` + itsRow + ` AND NOT c.skipped
RETURNING c.event_id, c.aggregate_id`

// Skip lets the later versions that a letter holds go on without it. The letter stays open.
func Skip(ctx context.Context, tx *gorm.DB, group string, id int64) error {
	return settle(tx.WithContext(ctx), group, id, skipRow, func(changed int) error {
		if changed == 0 {
			return ErrNotHolding
		}
		return nil
	})
}

// settle changes the dead row of a letter, where it has one, and wakes what it held. then gets how many rows were changed.
func settle(tx *gorm.DB, group string, id int64, statement string, then func(changed int) error) error {
	row, err := open(tx, group, id)
	if err != nil {
		return err
	}
	if row.ErrorClass == ClassConflict {
		return then(0)
	}
	args := map[string]any{
		"group": group, "id": id, "event_id": row.EventID, "topic": row.Topic, "partition": row.Partition, "offset": row.Offset,
	}
	var aggregates []string
	if err := tx.Raw(itsAggregates, args).Scan(&aggregates).Error; err != nil {
		return fmt.Errorf("looking for the row of a dead letter: %w", err)
	}
	for _, aggregate := range aggregates {
		if err := lock(tx, group, aggregate); err != nil {
			return err
		}
	}
	var changed []struct{ EventID, AggregateID string }
	err = tx.Raw(statement, args).Scan(&changed).Error
	for _, c := range changed {
		err = errors.Join(err, tx.Exec(wakeHeld, map[string]any{"group": group, "event_id": c.EventID, "aggregate": c.AggregateID}).Error)
	}
	if err != nil {
		return fmt.Errorf("settling the row of a dead letter: %w", err)
	}
	return then(len(changed))
}

// closeLetter is where two operators meet: the second one finds it closed.
func closeLetter(tx *gorm.DB, group string, id int64, state string, why Decision) error {
	result := tx.Table("t_dead_letter").Where("consumer_group = ? AND letter_id = ? AND state = 'OPEN'", group, id).
		Updates(map[string]any{"state": state, "closed_by": why.By, "closed_reason": why.Reason, "closed_at": clause.Expr{SQL: "now()"}})
	if result.Error != nil {
		return fmt.Errorf("closing a dead letter: %w", result.Error)
	}
	if result.RowsAffected == 0 {
		return ErrClosed
	}
	return nil
}

const sweepLetters = `
DELETE FROM t_dead_letter WHERE consumer_group = @group AND state <> 'OPEN' AND closed_at < now() - @keep * interval '1 microsecond'`

// Sweep deletes letters that have been closed for longer than keep. Open ones stay for ever: they are somebody's work.
func Sweep(ctx context.Context, db *gorm.DB, group string, keep time.Duration) (int64, error) {
	swept := db.WithContext(ctx).Exec(sweepLetters, map[string]any{"group": group, "keep": keep.Microseconds()})
	if swept.Error != nil {
		return 0, fmt.Errorf("deleting old dead letters: %w", swept.Error)
	}
	return swept.RowsAffected, nil
}
