package inbox

import (
	"context"
	"fmt"
	"math"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/lease"
)

// One short statement: rows that another worker is claiming are passed over, and nobody holds a row lock while a
// handler runs. "= ANY(ARRAY(...))" keeps the planner from running the subquery again and claiming more than one. The
// attempt is counted before it begins, so that a message that crashes the process is counted too. A row whose message
// somebody has removed is passed over: chosen, it would be found due again and again, and nothing behind it would be.
const claimDue = `
UPDATE t_message_consume c
SET status = 'PROCESSING', owner_token = @token, lease_until = now() + @lease * interval '1 microsecond',
    retry_count = ` + oneMore + `, next_retry_at = NULL, updated_at = now()
FROM t_message_retry m
WHERE m.consumer_group = c.consumer_group AND m.event_id = c.event_id AND c.consumer_group = @group
  AND c.event_id = ANY(ARRAY(
    SELECT event_id FROM t_message_consume
    WHERE consumer_group = @group AND status IN ('RETRY', 'WAITING') AND next_retry_at <= now()` + isKept + `
    ORDER BY next_retry_at LIMIT 1 FOR UPDATE SKIP LOCKED))` + returnClaimed

// One more than the largest number is an error, in the statement with which every worker claims all rows.
const oneMore = `least(c.retry_count, 1000000000) + 1`

const isKept = `
      AND EXISTS (SELECT FROM t_message_retry k
        WHERE k.consumer_group = t_message_consume.consumer_group AND k.event_id = t_message_consume.event_id)`

// returnClaimed fills a claimed.
const returnClaimed = `
RETURNING c.event_id, c.event_type, c.aggregate_id, c.aggregate_version, c.request_hash, c.retry_count, c.topic, c.partition, c."offset",
    coalesce(c.replay_id, '') AS replay_id, (extract(epoch FROM now() - c.first_received_at) * 1000000)::bigint AS waited,
    m.record_time, m.record_key, m.headers, m.payload`

// A lease that ran out: its holder has crashed or stands still. Should it come back, its token fits nothing any more.
const takeOver = `
UPDATE t_message_consume c
SET owner_token = @token, lease_until = now() + @lease * interval '1 microsecond',
    retry_count = ` + oneMore + `, updated_at = now()
FROM t_message_retry m
WHERE m.consumer_group = c.consumer_group AND m.event_id = c.event_id AND c.consumer_group = @group
  AND c.event_id = ANY(ARRAY(
    SELECT event_id FROM t_message_consume
    WHERE consumer_group = @group AND status = 'PROCESSING' AND lease_until < now()` + isKept + `
    ORDER BY lease_until LIMIT 1 FOR UPDATE SKIP LOCKED))` + returnClaimed

// Claim takes one message that is due from the group's retry lane, for the time of the lease; nil when none is due.
// Its event is only what the log row says: Decode it, then settle it with Once, Fail or GiveBack.
func Claim(ctx context.Context, db *gorm.DB, group string, rule lease.Rule) (*Delivery, error) {
	return claim(ctx, db, claimDue, group, rule)
}

// TakeOver is Claim for a message whose holder has let its lease run out.
func TakeOver(ctx context.Context, db *gorm.DB, group string, rule lease.Rule) (*Delivery, error) {
	return claim(ctx, db, takeOver, group, rule)
}

const lookExpired = `
SELECT EXISTS (
    SELECT FROM t_message_consume
    WHERE consumer_group = @group AND status = 'PROCESSING' AND lease_until < now()` + isKept + `)`

// Expired looks whether there is something to take over.
func Expired(ctx context.Context, db *gorm.DB, group string) (expired bool, err error) {
	if err := db.WithContext(ctx).Raw(lookExpired, map[string]any{"group": group}).Scan(&expired).Error; err != nil {
		return false, fmt.Errorf("looking for expired claims: %w", err)
	}
	return expired, nil
}

// claimed is a row as the two statements return it.
type claimed struct {
	EventID, EventType, AggregateID, ReplayID string
	AggregateVersion                          int64
	RequestHash                               string
	RetryCount                                int
	Topic                                     string
	Partition                                 int32
	Offset                                    int64
	Waited                                    int64 // microseconds
	RecordTime                                time.Time
	RecordKey, Headers, Payload               []byte
}

func claim(ctx context.Context, db *gorm.DB, statement, group string, rule lease.Rule) (*Delivery, error) {
	token := rule.Begin(group).Token
	var rows []claimed
	err := db.WithContext(ctx).Raw(statement, map[string]any{
		"group": group, "token": token, "lease": rule.Lease.Microseconds(),
	}).Scan(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("claiming from the retry lane: %w", err)
	}
	if len(rows) == 0 {
		return nil, nil
	}
	row := rows[0]
	d := &Delivery{
		Group: group, Claimed: true, token: token, hash: row.RequestHash, Failed: row.RetryCount - 1, ReplayID: row.ReplayID,
		Waited: waited(row.Waited),
		Event: event.Event{
			ID: row.EventID, Type: row.EventType, AggregateID: row.AggregateID, AggregateVersion: row.AggregateVersion,
		},
		Record: event.Record{
			Topic: row.Topic, Partition: row.Partition, Offset: row.Offset, Time: row.RecordTime.UTC(),
			Key: row.RecordKey, Value: row.Payload,
		},
	}
	if d.Record.Headers, err = decodeHeaders(row.Headers); err != nil {
		d.spoiled = append([]byte{}, row.Headers...)
	}
	return d, nil
}

// Decode reads the event of a claimed message. The log vouches for it: what has another id or hash than the log was changed
// by somebody's hand, and the error is ErrAltered. It must not be handled, and under another id nothing could settle it.
func (d Delivery) Decode() (event.Event, error) {
	if d.spoiled != nil {
		return event.Event{}, ErrAltered
	}
	e, err := event.Decode(d.Record)
	if err == nil && (e.ID != d.Event.ID || e.Hash() != d.hash) {
		err = ErrAltered
	}
	return e, err
}

// waited is never negative, as it would be by the clock of a database that is behind the one before it: the next attempt
// would be due at once, again and again.
func waited(microseconds int64) time.Duration {
	return time.Duration(min(max(microseconds, 0), math.MaxInt64/1000)) * time.Microsecond
}

const giveBack = `
UPDATE t_message_consume
SET status = 'RETRY', next_retry_at = now() + @after * interval '1 microsecond', owner_token = NULL, lease_until = NULL,
    retry_count = retry_count - 1, updated_at = now()
WHERE consumer_group = @group AND event_id = @event_id AND status = 'PROCESSING' AND owner_token = @token`

// GiveBack returns a claimed message to the lane as if it had not been tried: the trouble was not its own, or the
// process is ending.
func GiveBack(ctx context.Context, db *gorm.DB, d Delivery, after time.Duration) error {
	args := d.place()
	args["after"] = after.Microseconds()
	if err := fenced(db.WithContext(ctx).Exec(giveBack, args)); err != nil {
		return fmt.Errorf("giving a message back to the retry lane: %w", err)
	}
	return nil
}
