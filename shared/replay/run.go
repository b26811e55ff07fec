package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/postgres"
)

// poll is how often a running job is looked at; idle is how often one is looked for.
const (
	poll = 200 * time.Millisecond
	idle = time.Second
)

// Run carries out what operators have started, until ctx ends. Any number of processes may run it: each step is a short
// statement on locked rows, and what a dead process had claimed is taken over.
func (r *Replays) Run(ctx context.Context) error {
	swept := time.Time{}
	for wait := idle; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if r.Keep > 0 && time.Since(swept) > sweepEvery {
			swept = time.Now()
			r.sweep(ctx)
		}
		running, err := r.step(ctx)
		if err != nil && ctx.Err() == nil {
			r.Log.Warn("a replay cannot go on now", "group", r.Group, "error", err)
		}
		wait = idle
		if running && err == nil {
			wait = poll
		}
	}
}

// sweepEvery is how often ended jobs are looked through for old ones.
const sweepEvery = time.Hour

// Its frozen ids go with a job, and its rows in the audit stay. One that is paused is somebody's work.
const sweepJobs = `
DELETE FROM t_replay_job
WHERE consumer_group = @group AND state IN ('PLANNED', 'DONE', 'CANCELED')
  AND coalesce(ended_at, created_at) < now() - @keep * interval '1 microsecond'`

func (r *Replays) sweep(ctx context.Context) {
	swept := r.DB.WithContext(ctx).Exec(sweepJobs, map[string]any{"group": r.Group, "keep": r.Keep.Microseconds()})
	if swept.Error != nil && ctx.Err() == nil {
		r.Log.Warn("deleting old replays", "group", r.Group, "error", swept.Error)
	} else if swept.RowsAffected > 0 {
		r.Log.Info("old replays deleted", "group", r.Group, "replays", swept.RowsAffected)
	}
}

// A job that was stopped is still looked at while the lane has messages of it.
const openJobs = `
SELECT job_id, state = 'RUNNING' AS running FROM t_replay_job j
WHERE consumer_group = ? AND (state = 'RUNNING' OR state IN ('PAUSED', 'CANCELED')
    AND EXISTS (SELECT FROM t_replay_item i WHERE i.job_id = j.job_id AND i.state = 'BEGUN'))`

// step settles what has been decided, and begins what the running job's stage and rate allow.
func (r *Replays) step(ctx context.Context) (running bool, err error) {
	var open []struct {
		JobID   string
		Running bool
	}
	if err := r.DB.WithContext(ctx).Raw(openJobs, r.Group).Scan(&open).Error; err != nil {
		return false, fmt.Errorf("looking for replays: %w", err)
	}
	for _, job := range open {
		running = running || job.Running
		if err := r.watch(ctx, job.JobID); err != nil {
			return running, err
		}
		for more := true; more && ctx.Err() == nil; {
			if more, err = r.next(ctx, job.JobID); err != nil {
				return running, err
			}
		}
	}
	return running, nil
}

// next claims a message and begins it. When the stop comes meanwhile, both come to their end: broken off, the claim may have
// been committed, and the job would stand until its lease runs out.
func (r *Replays) next(stop context.Context, job string) (found bool, err error) {
	ctx, done := r.Lease.Claiming(stop)
	defer done()
	c, err := r.claim(ctx, job)
	if c == nil || err != nil {
		return false, err
	}
	return true, r.begin(stop, ctx, c)
}

// claimed is an item in the hands of this process.
type claimed struct {
	JobID, EventID, Token, StartedBy, Reason string
	Position                                 int
	LetterID                                 *int64
}

// The job's row is the gate: the stage's budget and the rate are taken together with the item, so that two processes
// together are no faster than one.
const claimNext = `
WITH job AS (
    SELECT job_id, rate, started_by, reason FROM t_replay_job
    WHERE job_id = @job AND state = 'RUNNING' AND budget > 0 AND next_at <= now() FOR UPDATE SKIP LOCKED),
item AS (
    SELECT i.job_id, i.position FROM t_replay_item i JOIN job USING (job_id)
    WHERE i.state = 'PENDING' ORDER BY i.position LIMIT 1 FOR UPDATE OF i SKIP LOCKED),
paid AS (
    UPDATE t_replay_job j
    SET budget = j.budget - 1, next_at = greatest(j.next_at, now() - interval '1 second') + interval '1 second' / j.rate, updated_at = now()
    FROM item WHERE j.job_id = item.job_id)
UPDATE t_replay_item i
SET state = 'CLAIMED', owner_token = @token, lease_until = now() + @lease * interval '1 microsecond', updated_at = now()
FROM item, job WHERE i.job_id = item.job_id AND i.position = item.position
RETURNING i.job_id, i.position, i.letter_id, i.event_id, i.owner_token AS token, job.started_by, job.reason`

// Its holder has died between the claim and the commit of what it began.
const takeOver = `
UPDATE t_replay_item i
SET owner_token = @token, lease_until = now() + @lease * interval '1 microsecond', updated_at = now()
FROM t_replay_job j
WHERE i.job_id = @job AND j.job_id = i.job_id AND j.state = 'RUNNING' AND i.position = ANY(ARRAY(
    SELECT position FROM t_replay_item WHERE job_id = @job AND state = 'CLAIMED' AND lease_until < now()
    ORDER BY position LIMIT 1 FOR UPDATE SKIP LOCKED))
RETURNING i.job_id, i.position, i.letter_id, i.event_id, i.owner_token AS token, j.started_by, j.reason`

func (r *Replays) claim(ctx context.Context, job string) (*claimed, error) {
	for _, statement := range []string{takeOver, claimNext} {
		var rows []claimed
		err := r.DB.WithContext(ctx).Raw(statement, map[string]any{
			"job": job, "token": r.Lease.Begin(r.Group).Token, "lease": r.Lease.Lease.Microseconds(),
		}).Scan(&rows).Error
		if err != nil {
			return nil, fmt.Errorf("claiming a message of a replay: %w", err)
		}
		if len(rows) > 0 {
			return &rows[0], nil
		}
	}
	return nil, nil
}

// begin hands a message to the road that it takes. For a letter this is one commit with the release, so a process that
// dies leaves both or neither; an event that is asked for twice is known to the consume log.
func (r *Replays) begin(stop, ctx context.Context, c *claimed) error {
	if c.LetterID == nil {
		return r.redeliver(stop, ctx, c)
	}
	by := audit.By{Actor: c.StartedBy, Reason: c.Reason}
	err := postgres.Transaction(ctx, r.DB, func(tx *gorm.DB) error {
		if err := settle(tx.WithContext(ctx), c, "BEGUN", ""); err != nil {
			return err
		}
		why := inbox.Decision{By: by.Actor, Reason: by.Reason}
		if err := inbox.ReleaseFor(ctx, tx, r.Group, *c.LetterID, c.JobID, why); err != nil {
			return err
		}
		return audit.Write(ctx, tx, by, "release", fmt.Sprintf("letter/%d", *c.LetterID), "by replay "+c.JobID)
	})
	if err == nil {
		r.Nudge()
		return nil
	}
	result, known := refusals[firstOf(err)]
	if !known {
		return fmt.Errorf("releasing a letter for a replay: %w", err)
	}
	if result == Altered {
		return r.distrust(ctx, c)
	}
	return r.settled(ctx, c, result)
}

// distrust stops the job at a letter that was altered: the others may have been as well, and a person must know.
func (r *Replays) distrust(ctx context.Context, c *claimed) error {
	err := postgres.Transaction(ctx, r.DB, func(tx *gorm.DB) error {
		if err := settle(tx.WithContext(ctx), c, "SETTLED", Altered); err != nil {
			return err
		}
		return r.stop(ctx, tx, c.JobID, fmt.Sprintf("letter %d does not hold the bytes that were received", *c.LetterID))
	})
	if err == nil {
		r.Metrics.count(Altered, 1)
	}
	return err
}

// refusals are answers of the office that end an item without a failure: it changed after it was planned. An altered
// letter also stops the job.
var refusals = map[error]string{
	inbox.ErrClosed: Decided, inbox.ErrUnderWay: AlreadyApplied, inbox.ErrNotReleasable: Conflict,
	inbox.ErrUnreadable: Unreadable, inbox.ErrNoLetter: Decided, inbox.ErrAltered: Altered,
}

func firstOf(err error) error {
	for known := range refusals {
		if errors.Is(err, known) {
			return known
		}
	}
	return err
}

func (r *Replays) settled(ctx context.Context, c *claimed, result string) error {
	err := settle(r.DB.WithContext(ctx), c, "SETTLED", result)
	if err == nil {
		r.Metrics.count(result, 1)
	}
	return err
}

const settleItem = `
UPDATE t_replay_item
SET state = @state, result = nullif(@result, ''), owner_token = NULL, lease_until = NULL,
    begun_at = CASE WHEN @state = 'BEGUN' THEN now() ELSE begun_at END, updated_at = now()
WHERE job_id = @job AND position = @position AND state = 'CLAIMED' AND owner_token = @token`

// settle is fenced: zero rows mean that somebody has taken the item over.
func settle(tx *gorm.DB, c *claimed, state, result string) error {
	changed := tx.Exec(settleItem, map[string]any{"state": state, "result": result, "job": c.JobID, "position": c.Position, "token": c.Token})
	if changed.Error == nil && changed.RowsAffected == 0 {
		return inbox.ErrFenced
	}
	if changed.Error != nil {
		return fmt.Errorf("settling a message of a replay: %w", changed.Error)
	}
	return nil
}

// redeliver asks payment, outside any transaction. When payment does not answer, the message goes back and the job
// pauses: to go on would ask a service that is in trouble again and again.
func (r *Replays) redeliver(stop, ctx context.Context, c *claimed) error {
	err := ErrNoSource
	if r.Source != nil {
		err = r.Source.Redeliver(ctx, Redelivery{
			By: audit.By{Actor: c.StartedBy, Reason: c.Reason}, Group: r.Group, EventIDs: []string{c.EventID}, ReplayID: c.JobID,
		})
	}
	if err == nil {
		return settle(r.DB.WithContext(ctx), c, "BEGUN", "")
	}
	if stop.Err() != nil {
		return stop.Err() // payment may be stopping as well: the lease runs out, and somebody else asks again
	}
	return postgres.Transaction(ctx, r.DB, func(tx *gorm.DB) error {
		if err := settle(tx.WithContext(ctx), c, "PENDING", ""); err != nil {
			return err
		}
		return r.stop(ctx, tx, c.JobID, "payment did not send event "+c.EventID+": "+err.Error())
	})
}
