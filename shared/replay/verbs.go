package replay

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"gorm.io/gorm"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/postgres"
)

// The verbs of a job, each with the states from which it goes.
var from = map[string][]string{
	"run":    {Planned},
	"resume": {Paused},
	"pause":  {Running},
	"cancel": {Planned, Running, Paused},
}

// Confirmation is the second one, of a run that may reach people: how many messages that may be. It must be the number
// that the plan tells, so that nobody confirms what he has not read.
type Confirmation struct {
	People int64 `json:"people"`
}

const startJob = `
UPDATE t_replay_job
SET state = 'RUNNING', stage = 'ONE', budget = 1, cause = NULL, next_at = now(), lag_before = @lag, started_by = @by,
    started_at = coalesce(started_at, now()), updated_at = now()
WHERE job_id = @id`

const pauseJob = `UPDATE t_replay_job SET state = 'PAUSED', cause = left(@cause, 512), updated_at = now() WHERE job_id = @id`

const cancelJob = `
UPDATE t_replay_job SET state = 'CANCELED', cause = NULL, ended_at = now(), updated_at = now() WHERE job_id = @id`

// Do carries out run, pause, resume or cancel, with its audit row. With dry it does all of it, answers the job as it
// would be, and rolls back. Run and resume begin with one message, whatever ran before.
func (r *Replays) Do(ctx context.Context, by audit.By, id, verb string, sure Confirmation, dry bool) (job Job, err error) {
	err = audit.Act(ctx, r.DB, by, verb, object(id), dry, func(tx *gorm.DB) (string, error) {
		// The row's lock makes this and the loop's steps take turns.
		if err := tx.Exec("SELECT FROM t_replay_job WHERE consumer_group = ? AND job_id = ? FOR UPDATE", r.Group, id).Error; err != nil {
			return "", fmt.Errorf("locking the replay: %w", err)
		}
		if job, err = r.get(tx, id); err != nil {
			return "", err
		}
		if !slices.Contains(from[verb], job.State) {
			return "", fmt.Errorf("%w: it is %s, and %s needs %s", ErrState, job.State, verb, strings.Join(from[verb], " or "))
		}
		args := map[string]any{"id": id, "by": by.Actor}
		statement := cancelJob
		switch verb {
		case "pause":
			statement, args["cause"] = pauseJob, "paused by "+by.Actor+": "+by.Reason
		case "run", "resume":
			statement, args["lag"] = startJob, r.Lag()
			if err := r.mayStart(tx, job, sure, dry); err != nil {
				return "", err
			}
		}
		if err := tx.Exec(statement, args).Error; err != nil {
			if postgres.IsUnique(err, "replay_one_at_a_time") {
				return "", ErrOther
			}
			return "", fmt.Errorf("carrying out %s: %w", verb, err)
		}
		job, err = r.get(tx, id)
		return job.told(), err
	})
	return job, err
}

func (r *Replays) mayStart(tx *gorm.DB, job Job, sure Confirmation, dry bool) error {
	if job.People != sure.People && !dry {
		return fmt.Errorf("%w: %d of these messages may reach somebody; confirm it with that number, %d was given", ErrPeople, job.People, sure.People)
	}
	var items []Item
	if err := tx.Table("t_replay_item").Where("job_id = ?", job.JobID).Order("position").Find(&items).Error; err != nil {
		return fmt.Errorf("reading the frozen ids: %w", err)
	}
	if hashOf(items) != job.IDsHash {
		return ErrAltered
	}
	return nil
}
