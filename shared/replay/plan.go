package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/event"
)

// Selection says what to handle once more. What is given narrows; at least one thing must be given. Class and Code are
// of dead letters, so with them, as with Letters, or with an event type alone, nothing but letters is chosen.
type Selection struct {
	Letters   []int64    `json:"letters,omitempty"`
	Class     string     `json:"class,omitempty"`
	Code      string     `json:"code,omitempty"`
	EventType string     `json:"event_type,omitempty"`
	From      *time.Time `json:"from,omitempty"` // when the group got it first
	To        *time.Time `json:"to,omitempty"`   // exclusive
	OrderNos  []string   `json:"order_nos,omitempty"`
	EventIDs  []string   `json:"event_ids,omitempty"` // those that the group has not seen are fetched from payment
}

func (s Selection) check() error {
	if len(s.Letters)+len(s.OrderNos)+len(s.EventIDs) == 0 && s.Class+s.Code+s.EventType == "" && s.From == nil && s.To == nil {
		return fmt.Errorf("%w: choose by letters, class, code, event type, time, orders or event ids; not everything there is", ErrSelection)
	}
	if len(s.EventIDs) > maxFetched || len(s.OrderNos) > maxFetched || len(s.Letters) > maxItems {
		return fmt.Errorf("%w: at most %d event ids or orders at a time", ErrSelection, maxFetched)
	}
	if s.From != nil && s.To != nil && !s.From.Before(*s.To) {
		return fmt.Errorf("%w: from must be before to, and to is not part of the range", ErrSelection)
	}
	return nil
}

func (s Selection) lettersOnly() bool {
	return len(s.Letters) > 0 || s.Class != "" || s.Code != "" || !s.named() && s.From == nil && s.To == nil
}

func (s Selection) named() bool { return len(s.OrderNos)+len(s.EventIDs) > 0 }

func (s Selection) args(group string) map[string]any {
	return map[string]any{
		"group": group, "letters": s.Letters, "class": s.Class, "code": s.Code, "type": s.EventType, "from": s.From, "to": s.To,
		"orders": s.OrderNos, "events": s.EventIDs, "no_letters": len(s.Letters) == 0, "no_orders": len(s.OrderNos) == 0,
		"no_events": len(s.EventIDs) == 0, "named": s.named(), "limit": maxItems + 1,
	}
}

// Oldest first: an earlier version of an order goes before what it holds.
const chooseLetters = `
SELECT letter_id, event_id, event_type, aggregate_id AS order_no FROM t_dead_letter
WHERE consumer_group = @group AND state = 'OPEN' AND erased_at IS NULL
  AND (@no_letters OR letter_id IN @letters) AND (@no_orders OR aggregate_id IN @orders) AND (@no_events OR event_id IN @events)
  AND (@class = '' OR error_class = @class) AND (@code = '' OR error_code = @code) AND (@type = '' OR event_type = @type)
  AND (CAST(@from AS timestamptz) IS NULL OR first_seen_at >= @from) AND (CAST(@to AS timestamptz) IS NULL OR first_seen_at < @to)
ORDER BY letter_id LIMIT @limit`

// Rows of the log have nothing to replay: they are finished, or the lane has them. They are shown, so that nobody has to
// guess why a chosen event is not among the messages of a run; those that are SUCCESS only when they were named, for of
// these there are millions. A row that is DEAD is there as its letter.
const chooseRows = `
SELECT event_id, event_type, aggregate_id AS order_no FROM t_message_consume
WHERE consumer_group = @group AND status <> 'DEAD' AND (@named OR status <> 'SUCCESS')
  AND (@no_orders OR aggregate_id IN @orders) AND (@no_events OR event_id IN @events) AND (@type = '' OR event_type = @type)
  AND (CAST(@from AS timestamptz) IS NULL OR first_received_at >= @from) AND (CAST(@to AS timestamptz) IS NULL OR first_received_at < @to)
ORDER BY first_received_at, event_id LIMIT @limit`

// Plan freezes what a selection means now, and tells what each message would do. Nothing is handled. With dry, the plan
// is not kept either.
func (r *Replays) Plan(ctx context.Context, by audit.By, s Selection, rate int, dry bool) (Job, error) {
	if err := s.check(); err != nil {
		return Job{}, err
	}
	if rate == 0 {
		rate = defaultRate
	}
	if rate < 1 || rate > 1000 {
		return Job{}, fmt.Errorf("%w: the rate is 1 to 1000 messages a second", ErrSelection)
	}
	items, err := r.choose(ctx, s)
	if err != nil {
		return Job{}, err
	}
	asked, err := json.Marshal(s)
	if err != nil {
		return Job{}, err
	}
	id := "r-" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12]
	var job Job
	err = audit.Act(ctx, r.DB, by, "plan", object(id), dry, func(tx *gorm.DB) (string, error) {
		err := tx.Table("t_replay_job").Create(map[string]any{
			"job_id": id, "consumer_group": r.Group, "rate": rate, "selection": string(asked), "items": len(items),
			"ids_hash": hashOf(items), "planned_by": by.Actor, "reason": by.Reason,
		}).Error
		if err != nil {
			return "", fmt.Errorf("keeping the plan: %w", err)
		}
		rows := make([]map[string]any, len(items))
		for i, item := range items {
			rows[i] = map[string]any{
				"job_id": id, "position": item.Position, "letter_id": item.LetterID, "event_id": item.EventID,
				"event_type": item.EventType, "order_no": item.OrderNo, "forecast": item.Forecast, "state": item.State, "result": item.Result,
			}
		}
		if err := tx.Table("t_replay_item").CreateInBatches(rows, 500).Error; err != nil {
			return "", fmt.Errorf("freezing the ids: %w", err)
		}
		job, err = r.get(tx, id)
		return job.told(), err
	})
	return job, err
}

func (r *Replays) choose(ctx context.Context, s Selection) ([]Item, error) {
	db := r.DB.WithContext(ctx)
	var items, rows []Item
	if err := db.Raw(chooseLetters, s.args(r.Group)).Scan(&items).Error; err != nil {
		return nil, fmt.Errorf("choosing dead letters: %w", err)
	}
	if !s.lettersOnly() {
		if err := db.Raw(chooseRows, s.args(r.Group)).Scan(&rows).Error; err != nil {
			return nil, fmt.Errorf("choosing from the consume log: %w", err)
		}
		items = append(items, rows...)
		seen := map[string]bool{}
		for _, item := range items {
			if item.EventID != nil {
				seen[*item.EventID] = true
			}
		}
		for _, id := range s.EventIDs {
			if !seen[id] {
				seen[id] = true
				items = append(items, Item{EventID: &id})
			}
		}
	}
	switch {
	case len(items) == 0:
		return nil, fmt.Errorf("%w: nothing of this group matches; look at its dead letters and its consume log, where what is done stands only under an order or an event id", ErrSelection)
	case len(items) > maxItems:
		return nil, fmt.Errorf("%w: more than %d messages match; narrow it", ErrSelection, maxItems)
	}
	for i := range items {
		items[i].Position = i + 1
		if err := r.forecast(ctx, &items[i]); err != nil {
			return nil, err
		}
	}
	return items, nil
}

func describe(item *Item, e event.Event) {
	item.EventID, item.EventType, item.OrderNo = &e.ID, &e.Type, &e.AggregateID
}
