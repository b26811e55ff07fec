package notify

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/lease"
)

// claimed is one command in our hands.
type claimed struct {
	CommandID   string
	EventID     string
	OrderNo     string
	Text        string
	TraceParent string // of the event's handling; may be empty
	Was         Status // before the claim: UNKNOWN has to be asked about first
	hold        lease.Hold
}

// claimDue takes the command that has been due for longest and that nobody else is taking. The attempt is counted before
// it begins: a crash leaves no time to count. The choice is materialized, so that it is made once; the planner may run
// a plain sub-select with LIMIT again for each row.
const claimDue = `
WITH due AS MATERIALIZED (
    SELECT command_id, status FROM t_notification_command
    WHERE status IN ('PENDING', 'RETRY', 'UNKNOWN') AND next_attempt_at <= now()
    ORDER BY next_attempt_at LIMIT 1 FOR UPDATE SKIP LOCKED)
UPDATE t_notification_command c
SET status = 'SENDING', owner_token = @token, lease_until = now() + @lease * interval '1 microsecond',
    attempts = attempts + 1, next_attempt_at = NULL, updated_at = now()
FROM due WHERE c.command_id = due.command_id
RETURNING c.command_id, c.event_id, c.order_no, c.text, coalesce(c.trace_parent, '') AS trace_parent, due.status AS was`

// claim gives false when nothing is due.
func (s *sender) claim(ctx context.Context) (claimed, bool, error) {
	var found []claimed
	hold := s.rule.Begin(s.owner)
	err := s.db.WithContext(ctx).Raw(claimDue, map[string]any{
		"token": hold.Token, "lease": s.rule.Lease.Microseconds(),
	}).Scan(&found).Error
	if err != nil || len(found) == 0 {
		if err != nil {
			err = fmt.Errorf("claiming a command: %w", err)
		}
		return claimed{}, false, err
	}
	found[0].hold = hold
	return found[0], true, nil
}

// takeOver ends claims whose lease has run out by the database's clock. Their sender is gone or stands still, perhaps in
// the middle of a request: whether the provider has the message is unknown, so they become UNKNOWN and are asked about.
// Should the old sender come back, its token fits nothing any more. Each further takeover waits longer.
const takeOver = `
UPDATE t_notification_command
SET status = 'UNKNOWN', last_error_code = 'lease_expired', takeover_count = takeover_count + 1,
    next_attempt_at = now() + least(@cap, @base * (power(2, least(takeover_count, 30)) - 1)) * interval '1 microsecond',
    owner_token = NULL, lease_until = NULL, updated_at = now()
WHERE command_id = ANY(ARRAY(
    SELECT command_id FROM t_notification_command
    WHERE status = 'SENDING' AND lease_until < now()
    ORDER BY lease_until LIMIT 100 FOR UPDATE SKIP LOCKED))
RETURNING command_id, event_id, order_no, takeover_count`

func (s *sender) takeOver(ctx context.Context) error {
	var taken []command
	if err := s.db.WithContext(ctx).Raw(takeOver, s.backoff()).Scan(&taken).Error; err != nil {
		return fmt.Errorf("taking over commands: %w", err)
	}
	for _, c := range taken {
		s.metrics.expired.Inc()
		s.log.WarnContext(ctx, "the lease of a command ran out", "command_id", c.CommandID, "event_id", c.EventID,
			"order_no", c.OrderNo, "takeovers", c.TakeoverCount)
	}
	return nil
}

func (s *sender) backoff() map[string]any {
	return map[string]any{"base": s.retryBase.Microseconds(), "cap": s.retryCap.Microseconds()}
}

// verdict is what came of a claim.
type verdict struct {
	status    Status
	code      string        // what the trouble is; empty keeps the last one
	messageID string        // with Sent
	after     time.Duration // not before; with Retry, Unknown and what was not begun
	notBegun  bool          // nothing was sent: the claim does not count, and status is what it was before
	askNow    bool          // the provider is there, so what is unknown can be asked at once
}

// settle writes the verdict where the claim is still ours. Backoff is exponential in the attempts with full jitter, but
// never sooner than the provider asked for. What was not begun comes back without backoff.
const settle = `
UPDATE t_notification_command
SET status = @status, owner_token = NULL, lease_until = NULL, updated_at = now(),
    attempts = attempts - @uncounted,
    provider_message_id = nullif(@message_id, ''), sent_at = CASE WHEN @status = 'SENT' THEN now() END,
    last_error_code = CASE WHEN @status = 'SENT' THEN NULL ELSE coalesce(nullif(@code, ''), last_error_code) END,
    next_attempt_at = CASE WHEN @status IN ('PENDING', 'RETRY', 'UNKNOWN') THEN now() + greatest(@after,
        (1 - @uncounted) * random() * least(@cap, @base * power(2, least(attempts - 1, 30)))) * interval '1 microsecond' END
WHERE command_id = @id AND owner_token = @token AND status = 'SENDING'`

// settle reports false when the claim has been taken over: nothing was changed then.
func (s *sender) settle(ctx context.Context, c claimed, v verdict) (bool, error) {
	args := s.backoff()
	args["id"], args["token"], args["status"] = c.CommandID, c.hold.Token, string(v.status)
	args["code"], args["message_id"], args["after"], args["uncounted"] = v.code, v.messageID, v.after.Microseconds(), 0
	if v.notBegun {
		args["uncounted"] = 1
	}
	done := s.db.WithContext(ctx).Exec(settle, args)
	if done.Error != nil {
		return false, fmt.Errorf("settling a command: %w", done.Error)
	}
	return done.RowsAffected == 1, nil
}

// unsent is the sample behind the gauges.
const selectUnsent = `
SELECT status, count(*) AS rows, coalesce(extract(epoch FROM now() - min(created_at)), 0) AS oldest
FROM t_notification_command WHERE status <> 'SENT' GROUP BY status`

type unsent struct {
	Status Status
	Rows   float64
	Oldest float64 // seconds
}

func countUnsent(ctx context.Context, db *gorm.DB) (all []unsent, err error) {
	err = db.WithContext(ctx).Raw(selectUnsent).Scan(&all).Error
	return all, err
}
