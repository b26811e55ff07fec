package inbox

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"
)

// The classes of trouble, as they stand in error_class.
const (
	ClassTransient   = "transient"
	ClassWaiting     = "waiting"
	ClassBadData     = "bad_data"
	ClassRefused     = "refused"
	ClassPanic       = "panic"
	ClassCrash       = "crashes_consumer"
	ClassConflict    = "conflict"
	ClassUndecodable = "undecodable"
)

// Trouble says what is wrong with a message, in words that hold no payload and no personal data.
type Trouble struct {
	Class string
	Code  string // a SQLSTATE or a short name; may be empty
	Text  string
}

// Failure is an attempt that did not succeed, with the decision about it.
type Failure struct {
	Outcome Outcome       // Retry, Waiting, Refused or Dead
	After   time.Duration // until the next attempt, with Retry and Waiting
	Trouble
}

// Fail records a failed attempt, together with the message, in a transaction of its own: the handler's has been rolled
// back. When the log knows the event already, it says so and records nothing: another delivery was faster, or our own
// commit, whose answer was lost, went through.
func Fail(ctx context.Context, tx *gorm.DB, d Delivery, f Failure) (Outcome, error) {
	tx = tx.WithContext(ctx)
	if out, err := begin(ctx, tx, d); out != "" || err != nil {
		return out, err
	}
	switch f.Outcome {
	case Retry:
		return Retry, postpone(tx, d, StatusRetry, f)
	case Waiting:
		return Waiting, postpone(tx, d, StatusWaiting, f)
	case Refused:
		return Refused, finish(tx, d, StatusRejected, Refused)
	case Dead:
		return Dead, bury(tx, d, f.Trouble)
	default:
		return "", fmt.Errorf("inbox: %q is not the outcome of a failure", f.Outcome)
	}
}

const postponeRow = `
UPDATE t_message_consume
SET status = @status, next_retry_at = now() + @after * interval '1 microsecond', held_by = NULL,
    owner_token = NULL, lease_until = NULL, retry_count = retry_count + @count, updated_at = now()
WHERE consumer_group = @group AND event_id = @event_id AND status = 'PROCESSING' AND owner_token = @token`

func postpone(tx *gorm.DB, d Delivery, s Status, f Failure) error {
	args := d.place()
	args["status"], args["after"], args["count"] = string(s), f.After.Microseconds(), d.uncounted()
	if s == StatusWaiting {
		args["count"] = d.uncounted() - 1 // waiting is no failure
	}
	if err := fenced(tx.Exec(postponeRow, args)); err != nil {
		return fmt.Errorf("recording %s: %w", s, err)
	}
	return keepMessage(tx, d, f.Trouble)
}

const holdRow = `
UPDATE t_message_consume
SET status = 'WAITING', held_by = @by, next_retry_at = NULL, owner_token = NULL, lease_until = NULL,
    retry_count = retry_count - @counted, updated_at = now()
WHERE consumer_group = @group AND event_id = @event_id AND status = 'PROCESSING' AND owner_token = @token`

// hold puts the message behind an earlier one of its aggregate. It is not due by time; finishing that one wakes it.
func hold(tx *gorm.DB, d Delivery, by string) error {
	args := d.place()
	args["by"] = by
	if err := fenced(tx.Exec(holdRow, args)); err != nil {
		return fmt.Errorf("holding the message behind an earlier one: %w", err)
	}
	return keepMessage(tx, d, Trouble{Class: ClassWaiting, Code: "earlier_version", Text: "an earlier version of the aggregate is unfinished"})
}

const keepRow = `
INSERT INTO t_message_retry
    (consumer_group, event_id, record_time, record_key, headers, payload, error_class, error_code, error_text)
VALUES (@group, @event_id, @time, @key, @headers, @payload, @class, @code, @text)
ON CONFLICT (consumer_group, event_id) DO UPDATE
SET error_class = excluded.error_class, error_code = excluded.error_code, error_text = excluded.error_text`

func keepMessage(tx *gorm.DB, d Delivery, t Trouble) error {
	args := d.place()
	d.message(args)
	t.args(args)
	if err := tx.Exec(keepRow, args).Error; err != nil {
		return fmt.Errorf("keeping the message for its retry: %w", err)
	}
	return nil
}

const buryRow = `
WITH cleared AS (
    DELETE FROM t_message_retry WHERE consumer_group = @group AND event_id = @event_id)
UPDATE t_message_consume
SET status = 'DEAD', skipped = @skip, owner_token = NULL, lease_until = NULL,
    retry_count = retry_count + @count, updated_at = now()
WHERE consumer_group = @group AND event_id = @event_id AND status = 'PROCESSING' AND owner_token = @token`

const wakeHeld = `
UPDATE t_message_consume SET held_by = NULL, next_retry_at = now(), updated_at = now()
WHERE consumer_group = @group AND aggregate_id = @aggregate AND status = 'WAITING' AND held_by = @event_id`

// bury ends the automatic attempts. Later versions stay held, visibly, until an operator decides, unless the event's
// type is one that holds nobody.
func bury(tx *gorm.DB, d Delivery, t Trouble) error {
	args := d.place()
	args["skip"], args["count"] = d.SkipDead, d.uncounted()
	if err := fenced(tx.Exec(buryRow, args)); err != nil {
		return fmt.Errorf("recording DEAD: %w", err)
	}
	if d.SkipDead {
		if err := tx.Exec(wakeHeld, args).Error; err != nil {
			return fmt.Errorf("waking later versions: %w", err)
		}
	}
	d.Failed++
	return writeLetter(tx, d, t, nil, true)
}

// fenced turns "no row was mine" into ErrFenced.
func fenced(result *gorm.DB) error {
	if result.Error == nil && result.RowsAffected == 0 {
		return ErrFenced
	}
	return result.Error
}

// message adds the record as received to the arguments of a statement.
func (d Delivery) message(args map[string]any) {
	args["time"], args["key"], args["payload"] = d.Record.Time, d.Record.Key, d.Record.Value
	args["headers"] = encodeHeaders(d.Record.Headers)
	if d.spoiled != nil {
		args["headers"] = d.spoiled
	}
}

func (t Trouble) args(args map[string]any) {
	args["class"], args["code"], args["text"] = t.Class, t.Code, t.Text
}
