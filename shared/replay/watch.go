package replay

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/postgres"
)

// What became of a message is what the consume log says of it, whoever handled it. WAITING ends an item too: the lane
// has the message, and an earlier version of its order may be further back in this very job.
const settleDecided = `
UPDATE t_replay_item i
SET state = 'SETTLED', updated_at = now(), result = CASE c.status
    WHEN 'SUCCESS' THEN c.outcome WHEN 'REJECTED' THEN c.outcome WHEN 'DEAD' THEN 'dead' WHEN 'WAITING' THEN 'waiting' ELSE 'retry' END
FROM t_message_consume c
WHERE i.job_id = @job AND i.state = 'BEGUN' AND c.consumer_group = @group AND c.event_id = i.event_id
  AND (c.status IN ('SUCCESS', 'REJECTED', 'DEAD', 'WAITING') OR c.status = 'RETRY' AND c.retry_count > 0)
RETURNING i.result, i.event_id, coalesce(i.order_no, '') AS order_no`

const progress = `
SELECT j.state, coalesce(j.stage, '') AS stage, j.budget, j.lag_before, coalesce(j.started_by, '') AS started_by,
    (SELECT count(*) FROM t_replay_item i WHERE i.job_id = j.job_id AND i.state = 'PENDING') AS pending,
    (SELECT count(*) FROM t_replay_item i WHERE i.job_id = j.job_id AND i.state IN ('CLAIMED', 'BEGUN')) AS under_way,
    (SELECT count(*) FROM t_replay_item i WHERE i.job_id = j.job_id AND i.state = 'BEGUN'
        AND i.begun_at < now() - @stuck * interval '1 microsecond') AS stuck
FROM t_replay_job j WHERE j.job_id = @job AND j.consumer_group = @group FOR UPDATE SKIP LOCKED`

const nextStage = `UPDATE t_replay_job SET stage = @stage, budget = @budget, updated_at = now() WHERE job_id = @job`

const endJob = `UPDATE t_replay_job SET state = 'DONE', ended_at = now(), updated_at = now() WHERE job_id = @job`

// unlimited is the budget of the last stage: more than a job can have.
const unlimited = maxItems + 1

// watch settles what has been decided, and stops, advances or ends the job. Another process that does the same is passed
// over.
func (r *Replays) watch(ctx context.Context, id string) error {
	results := map[string]int{}
	err := postgres.Transaction(ctx, r.DB, func(tx *gorm.DB) error {
		tx = tx.WithContext(ctx)
		clear(results)
		args := map[string]any{"job": id, "group": r.Group, "stuck": stuck.Microseconds()}
		var at []struct {
			State, Stage, StartedBy  string
			Budget                   int
			LagBefore                int64
			Pending, UnderWay, Stuck int
		}
		var decided []struct{ Result, EventID, OrderNo string }
		// The lock comes first: then nobody begins or stops anything in between.
		if err := tx.Raw(progress, args).Scan(&at).Error; err != nil || len(at) == 0 {
			return err
		}
		if err := tx.Raw(settleDecided, args).Scan(&decided).Error; err != nil {
			return err
		}
		now := at[0]
		now.UnderWay -= len(decided)
		cause := ""
		for _, d := range decided {
			results[d.Result]++
			if d.Result == "dead" || d.Result == "refused" || d.Result == "retry" {
				cause = fmt.Sprintf("event %s of order %s is %s", d.EventID, d.OrderNo, words[d.Result])
			}
		}
		if now.State != Running {
			return nil
		}
		growth := r.Lag() - now.LagBefore
		switch {
		case cause != "":
			return r.stop(ctx, tx, id, cause)
		case now.Pending == 0 && now.UnderWay == 0:
			return r.end(ctx, tx, id)
		case growth > maxLagGrowth:
			return r.stop(ctx, tx, id, fmt.Sprintf("the group's lag has grown by %d records since the start; at most %d are allowed", growth, maxLagGrowth))
		case now.Stuck > 0 && len(decided) == 0:
			return r.stop(ctx, tx, id, fmt.Sprintf("%d messages have begun and were not decided about within %v: the retry lane does not keep up", now.Stuck, stuck))
		case now.Budget > 0 || now.UnderWay > 0:
			return nil
		}
		next := map[string]any{"job": id, "stage": "REST", "budget": unlimited}
		if now.Stage == "ONE" {
			next["stage"], next["budget"] = "TEN", 10
		}
		return tx.Exec(nextStage, next).Error
	})
	if err != nil {
		return fmt.Errorf("watching replay %s: %w", id, err)
	}
	for result, n := range results {
		r.Metrics.count(result, n)
	}
	return nil
}

var words = map[string]string{
	"dead": "a dead letter again", "refused": "refused by the business", "retry": "failing again, and tried on by the lane",
}

// stop pauses the job for a cause that it found itself, with an audit row.
func (r *Replays) stop(ctx context.Context, tx *gorm.DB, id, cause string) error {
	if err := tx.Exec(pauseJob+" AND state = 'RUNNING'", map[string]any{"id": id, "cause": cause}).Error; err != nil {
		return fmt.Errorf("pausing a replay: %w", err)
	}
	r.Log.Error("a replay has stopped itself", "group", r.Group, "replay_id", id, "cause", cause)
	return r.byItself(ctx, tx, id, "stopped itself", cause)
}

func (r *Replays) end(ctx context.Context, tx *gorm.DB, id string) error {
	if err := tx.Exec(endJob, map[string]any{"job": id}).Error; err != nil {
		return fmt.Errorf("ending a replay: %w", err)
	}
	r.Log.Info("a replay has ended", "group", r.Group, "replay_id", id)
	return r.byItself(ctx, tx, id, "ended", "every message is settled")
}

// byItself is a step that nobody asked for: the one who started the job answers for it.
func (r *Replays) byItself(ctx context.Context, tx *gorm.DB, id, verb, cause string) error {
	job, err := r.get(tx, id)
	if err != nil {
		return err
	}
	return audit.Write(ctx, tx, audit.By{Actor: *job.StartedBy, Reason: cause[:min(len(cause), 512)]}, verb, object(id), job.told())
}
