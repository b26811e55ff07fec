package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/inbox"
)

// ErrNotRehearsable is what Try says of a handler whose effect is elsewhere: it cannot be rolled back.
var ErrNotRehearsable = errors.New("this group's effect is outside its database and cannot be rolled back, so no handler has run; a run begins with one message, and that one is the rehearsal")

// How long an operator waits for an answer is bounded. Rehearsing is less than what a server's answer may take.
const (
	maxRehearsed = 200
	rehearsing   = 20 * time.Second
)

// Rehearsal is what a run would do now.
type Rehearsal struct {
	JobID     string         `json:"job_id"`
	Rehearsed int            `json:"rehearsed"` // the first of what is pending: at most 200, and what 20 s are enough for
	Pending   int64          `json:"pending"`
	Results   map[string]int `json:"results"`
	Failures  []Failed       `json:"failures"` // the first 5
	// Refused is why no handler has run. Results are then what the consume log makes expect, as in a plan, but of now.
	Refused string `json:"refused,omitempty"`
}

// maxFailures is how many of them are told one by one.
const maxFailures = 5

// Failed is a message that would be a dead letter again.
type Failed struct {
	Position int    `json:"position"`
	EventID  string `json:"event_id"`
	OrderNo  string `json:"order_no"`
	Class    string `json:"error_class"`
	Text     string `json:"error_text"`
}

// Rehearse runs the handler for the pending messages of a job, each in a transaction that is rolled back. Where that is
// impossible it looks each of them up again in the consume log and says so. What is left is an audit row.
func (r *Replays) Rehearse(ctx context.Context, by audit.By, id string) (Rehearsal, error) {
	job, err := r.Get(ctx, id)
	if err != nil {
		return Rehearsal{}, err
	}
	told := Rehearsal{JobID: id, Pending: job.States["PENDING"], Results: map[string]int{}, Failures: []Failed{}}
	var items []Item
	err = r.DB.WithContext(ctx).Table("t_replay_item").Where("job_id = ? AND state = 'PENDING'", id).
		Order("position").Limit(maxRehearsed).Find(&items).Error
	if err != nil {
		return told, fmt.Errorf("reading what is pending: %w", err)
	}
	verb := "rehearse"
	limited, cancel := context.WithTimeout(ctx, rehearsing)
	defer cancel()
	for _, item := range items {
		result, trouble, err := r.rehearseOne(limited, &item)
		if limited.Err() != nil {
			break // this one was cut off, which is no result
		}
		switch {
		case errors.Is(err, ErrNotRehearsable):
			verb, told.Refused = "preflight", ErrNotRehearsable.Error()
		case err != nil:
			return told, err
		default:
			told.Rehearsed++
		}
		told.Results[result]++
		if trouble.Class != "" && len(told.Failures) < maxFailures {
			told.Failures = append(told.Failures, Failed{item.Position, *item.EventID, *item.OrderNo, trouble.Class, trouble.Text})
		}
	}
	job.Results = map[string]int64{}
	for result, n := range told.Results {
		job.Results[result] = int64(n)
	}
	ctx = context.WithoutCancel(ctx) // what was done is recorded, though the one who asked may be gone
	return told, audit.Act(ctx, r.DB, by, verb, object(id), false, func(*gorm.DB) (string, error) { return job.told(), nil })
}

// rehearseOne tells what would become of a message; together with ErrNotRehearsable, what the log makes expect of it.
func (r *Replays) rehearseOne(ctx context.Context, item *Item) (string, inbox.Trouble, error) {
	d, why, err := r.delivery(ctx, item)
	if err != nil || why != "" {
		return why, inbox.Trouble{}, err
	}
	out, trouble, err := r.Try(ctx, d)
	if errors.Is(err, ErrNotRehearsable) {
		why, failed := r.lookUp(ctx, d.Event)
		if failed != nil {
			err = failed
		}
		return why, trouble, err
	}
	if err != nil {
		return "", trouble, err
	}
	if trouble.Class != "" {
		return trouble.Class, trouble, nil
	}
	return string(out), trouble, nil
}
