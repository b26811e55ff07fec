package outbox

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/ops"
)

// Listed is a row as operators see it: all but its contents.
type Listed struct {
	EventID          string     `json:"event_id"`
	OrderNo          string     `json:"order_no" gorm:"column:aggregate_id"`
	EventType        string     `json:"event_type"`
	AggregateVersion int64      `json:"aggregate_version"`
	Destination      string     `json:"destination"`
	Status           string     `json:"status"`
	RetryCount       int        `json:"retry_count"`
	TakeoverCount    int        `json:"takeover_count"`
	Alone            bool       `json:"alone,omitempty"`
	HeldBy           *string    `json:"held_by,omitempty"`
	Skipped          bool       `json:"skipped,omitempty"`
	OwnerToken       *string    `json:"owner_token,omitempty"`
	LeaseUntil       *time.Time `json:"lease_until,omitempty"`
	NextRetryAt      *time.Time `json:"next_retry_at,omitempty"`
	LastErrorCode    *string    `json:"last_error_code,omitempty"`
	LastErrorMessage *string    `json:"last_error_message,omitempty"`
	BrokerPartition  *int32     `json:"partition,omitempty"`
	BrokerOffset     *int64     `json:"offset,omitempty"`
	CreatedAt        time.Time  `json:"created_at"`
	SentAt           *time.Time `json:"sent_at,omitempty"`
}

// Destination is a topic and what is wrong with it.
type Destination struct {
	Destination string     `json:"destination"`
	State       string     `json:"state"`
	Cause       *string    `json:"cause,omitempty"`
	Since       time.Time  `json:"since"`
	ProbeAt     *time.Time `json:"probe_at,omitempty"`
}

// Page is the answer of List. Counts are of all unsent rows that are not skipped, whatever the page shows.
type Page struct {
	Counts           map[string]int64 `json:"counts"` // by status; PENDING, SENDING, RETRY and DEAD are always there
	Held             int64            `json:"held"`
	OldestAgeSeconds float64          `json:"oldest_pending_age_seconds"`
	Destinations     []Destination    `json:"destinations"`
	Rows             []Listed         `json:"rows"` // oldest first
	Next             string           `json:"next,omitempty"`
}

const (
	defaultLimit = 50
	maxLimit     = 500
)

// countUnsent and listUnsent read indexes of unsent rows, never the table of weeks of sent ones.
const countUnsent = `
select status, count(*) as n, count(held_by) as held, extract(epoch from now() - min(created_at))::float8 as oldest
from t_outbox_event where sent_at is null and not skipped group by status`

// listUnsent is in two indexes' words: what can still go out, and what only an operator can send on its way.
const listUnsent = `sent_at is null and (not skipped or next_retry_at is null)`

// List answers GET /ops/outbox?status=&order_no=&after=&limit=. Without a filter it lists what is not sent; sent rows
// are listed by order only.
//
// What could not be read is told in the log: the answer goes to whoever asked, and that may be a script. The error names
// a column and at most a number of it; payloads are not among what is listed.
func List(db *gorm.DB, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		limit := defaultLimit
		if s := q.Get("limit"); s != "" {
			n, err := strconv.Atoi(s)
			if err != nil || n < 1 || n > maxLimit {
				ops.Problem(w, http.StatusBadRequest, "bad-request", fmt.Sprintf("limit must be a number from 1 to %d", maxLimit))
				return
			}
			limit = n
		}
		status, order := q.Get("status"), q.Get("order_no")
		if status != "" && !slices.Contains([]string{Pending, Sending, Sent, Retry, Dead}, status) {
			ops.Problem(w, http.StatusBadRequest, "bad-request", "status must be PENDING, SENDING, SENT, RETRY or DEAD")
			return
		}
		if status == Sent && order == "" {
			ops.Problem(w, http.StatusBadRequest, "bad-request", "sent rows are listed by order_no only")
			return
		}
		page := db.WithContext(r.Context()).Table("t_outbox_event")
		if order != "" {
			page = page.Where("aggregate_type = ? and aggregate_id = ?", event.AggregateOrder, order)
		} else {
			page = page.Where(listUnsent)
		}
		if status != "" {
			page = page.Where("status = ?", status)
		}
		if after := q.Get("after"); after != "" {
			at, id, _ := strings.Cut(after, "_")
			created, err := time.Parse(time.RFC3339Nano, at)
			if err != nil {
				ops.Problem(w, http.StatusBadRequest, "bad-request", "after must be the next of an earlier page")
				return
			}
			page = page.Where("(created_at, event_id) > (?, ?)", created, id)
		}
		answer := Page{Destinations: []Destination{}, Rows: []Listed{}}
		err := page.Order("created_at, event_id").Limit(limit + 1).Find(&answer.Rows).Error
		if err == nil {
			err = answer.count(db.WithContext(r.Context()))
		}
		if err == nil {
			err = db.WithContext(r.Context()).Table("t_outbox_destination").Order("destination").Find(&answer.Destinations).Error
		}
		if err != nil {
			unreadable(w, r, log, err)
			return
		}
		if len(answer.Rows) > limit {
			answer.Rows = answer.Rows[:limit]
			last := answer.Rows[limit-1]
			answer.Next = last.CreatedAt.UTC().Format(time.RFC3339Nano) + "_" + last.EventID
		}
		ops.WriteJSON(w, http.StatusOK, answer)
	})
}

func (p *Page) count(db *gorm.DB) error {
	var found []struct {
		Status string
		N      int64
		Held   int64
		Oldest float64
	}
	if err := db.Raw(countUnsent).Scan(&found).Error; err != nil {
		return fmt.Errorf("counting unsent outbox rows: %w", err)
	}
	p.Counts = map[string]int64{Pending: 0, Sending: 0, Retry: 0, Dead: 0}
	for _, f := range found {
		p.Counts[f.Status] = f.N
		p.Held += f.Held
		if f.Status != Dead {
			p.OldestAgeSeconds = max(p.OldestAgeSeconds, f.Oldest)
		}
	}
	return nil
}
