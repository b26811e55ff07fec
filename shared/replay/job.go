package replay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/lease"
)

// Replays are those of one consumer group.
type Replays struct {
	Group string
	DB    *gorm.DB // with inbox.Migrations and audit.Migrations
	Lease lease.Rule
	Keep  time.Duration // of ended jobs and of plans that nobody ran; 0: they stay
	Log   *slog.Logger
	// ReachesPeople makes a run ask for the number of messages that may reach somebody.
	ReachesPeople bool
	// Try runs the handler for a delivery and rolls back; trouble says what failed. err is ErrNotRehearsable, or means
	// that nothing could be tried.
	Try     func(ctx context.Context, d inbox.Delivery) (out inbox.Outcome, trouble inbox.Trouble, err error)
	Lag     func() int64 // of the group, in records
	Nudge   func()       // wakes the retry lane
	Source  Source       // where events are that the group has not seen; nil when it is not configured
	Metrics *Metrics
}

const (
	defaultRate = 50    // messages a second
	maxItems    = 10000 // of one job
	maxFetched  = 1000  // of them from payment, which is asked one by one
	// A replay that makes everything else late is stopped. Live traffic alone moves the lag by far less.
	maxLagGrowth = 1000
	// stuck is how long a message that has begun may go without a decision.
	stuck = time.Minute
)

// The states of a job; see the package's comment.
const (
	Planned  = "PLANNED"
	Running  = "RUNNING"
	Paused   = "PAUSED"
	Done     = "DONE"
	Canceled = "CANCELED"
)

// Job is a replay as operators see it.
type Job struct {
	JobID     string           `json:"job_id"`
	State     string           `json:"state"`
	Stage     *string          `json:"stage,omitempty"` // ONE, TEN, REST
	Cause     *string          `json:"cause,omitempty"` // of a pause
	Rate      int              `json:"rate"`
	Items     int              `json:"items"`
	IDsHash   string           `json:"ids_hash" gorm:"column:ids_hash"`
	Selection json.RawMessage  `json:"selection"`
	PlannedBy string           `json:"planned_by"`
	Reason    string           `json:"reason"`
	StartedBy *string          `json:"started_by,omitempty"`
	CreatedAt time.Time        `json:"created_at"`
	StartedAt *time.Time       `json:"started_at,omitempty"`
	EndedAt   *time.Time       `json:"ended_at,omitempty"`
	Forecasts map[string]int64 `json:"forecasts" gorm:"-"` // what the plan expected
	States    map[string]int64 `json:"states" gorm:"-"`    // PENDING, CLAIMED, BEGUN, SETTLED
	Results   map[string]int64 `json:"results" gorm:"-"`   // of the settled ones
	// People is how many messages could reach somebody, where the group reaches people: those that are not settled.
	People int64 `json:"people,omitempty" gorm:"-"`

	LagBefore int64 `json:"-"`
}

// Item is one message of a job.
type Item struct {
	Position  int        `json:"position"`
	LetterID  *int64     `json:"letter_id,omitempty"`
	EventID   *string    `json:"event_id,omitempty"`
	EventType *string    `json:"event_type,omitempty"`
	OrderNo   *string    `json:"order_no,omitempty"`
	Forecast  string     `json:"forecast"`
	State     string     `json:"state"`
	Result    *string    `json:"result,omitempty"`
	UpdatedAt *time.Time `json:"updated_at,omitempty"`
}

// Why a verb cannot be carried out.
var (
	ErrNoJob      = errors.New("there is no such replay")
	ErrState      = errors.New("the replay is not in a state in which this can be done")
	ErrOther      = errors.New("another replay of this group is running; two at once would hide which of them does harm")
	ErrSelection  = errors.New("the selection cannot be used")
	ErrPeople     = errors.New("the second confirmation does not fit")
	ErrAltered    = errors.New("the frozen ids are not those that were planned")
	ErrNoSource   = errors.New("this process has no PAYMENT_OPS_URL, so it cannot ask for an event that it has not kept: start it with one, or choose dead letters")
	ErrNoEvent    = errors.New("payment's outbox and archive do not have this event")
	ErrNotApplied = errors.New("there is nothing to apply again")
)

// object is a job's name in the audit.
func object(id string) string { return "replay/" + id }

const selectJobs = `
SELECT job_id, state, stage, cause, rate, items, ids_hash, convert_to(selection, 'UTF8') AS selection, planned_by, reason,
    started_by, created_at, started_at, ended_at, lag_before
FROM t_replay_job WHERE consumer_group = @group AND (@id = '' OR job_id = @id)
ORDER BY created_at DESC, job_id LIMIT 100`

const countItems = `
SELECT state, coalesce(result, '') AS result, forecast, count(*) AS n FROM t_replay_item WHERE job_id = ? GROUP BY 1, 2, 3`

// List gives the newest jobs, newest first.
func (r *Replays) List(ctx context.Context) ([]Job, error) { return r.jobs(r.DB.WithContext(ctx), "") }

// Get gives one job.
func (r *Replays) Get(ctx context.Context, id string) (Job, error) {
	return r.get(r.DB.WithContext(ctx), id)
}

func (r *Replays) get(db *gorm.DB, id string) (Job, error) {
	jobs, err := r.jobs(db, id)
	if err == nil && (len(jobs) == 0 || id == "") {
		err = ErrNoJob
	}
	if err != nil {
		return Job{}, err
	}
	return jobs[0], nil
}

func (r *Replays) jobs(db *gorm.DB, id string) ([]Job, error) {
	jobs := []Job{}
	if err := db.Raw(selectJobs, map[string]any{"group": r.Group, "id": id}).Scan(&jobs).Error; err != nil {
		return nil, fmt.Errorf("listing replays: %w", err)
	}
	for i := range jobs {
		var counts []struct {
			State, Result, Forecast string
			N                       int64
		}
		if err := db.Raw(countItems, jobs[i].JobID).Scan(&counts).Error; err != nil {
			return nil, fmt.Errorf("counting the messages of a replay: %w", err)
		}
		j := &jobs[i]
		j.States, j.Results, j.Forecasts = map[string]int64{}, map[string]int64{}, map[string]int64{}
		for _, c := range counts {
			j.States[c.State] += c.N
			j.Forecasts[c.Forecast] += c.N
			if c.Result != "" {
				j.Results[c.Result] += c.N
			}
			if c.State != "SETTLED" && r.ReachesPeople {
				j.People += c.N
			}
		}
	}
	return jobs, nil
}

// Contents lists a job's messages in their order, after the given position.
func (r *Replays) Contents(ctx context.Context, id string, after, limit int) ([]Item, error) {
	if _, err := r.Get(ctx, id); err != nil {
		return nil, err
	}
	items := []Item{}
	err := r.DB.WithContext(ctx).Table("t_replay_item").Where("job_id = ? AND position > ?", id, after).
		Order("position").Limit(limit).Find(&items).Error
	if err != nil {
		return nil, fmt.Errorf("listing the messages of a replay: %w", err)
	}
	return items, nil
}

// hashOf is over the frozen ids in their order: a plan that was looked at is the plan that runs.
func hashOf(items []Item) string {
	h := sha256.New()
	for _, i := range items {
		letter, id := int64(0), ""
		if i.LetterID != nil {
			letter = *i.LetterID
		}
		if i.EventID != nil {
			id = *i.EventID
		}
		_, _ = fmt.Fprintf(h, "%d %d %q\n", i.Position, letter, id) // a hash never fails to write
	}
	return hex.EncodeToString(h.Sum(nil))
}

// told is what the audit says of a job at each step.
func (j Job) told() string {
	what := fmt.Sprintf("%d messages, hash %.12s; %s", j.Items, j.IDsHash, tally(j.States))
	if len(j.Results) > 0 {
		what += "; " + tally(j.Results)
	}
	return what
}

func tally(of map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, of[name]))
	}
	return strings.Join(parts, ", ")
}
