package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
)

// Reapplied is what Reapply has put into the lane, or with a dry run would.
type Reapplied struct {
	EventID   string `json:"event_id"`
	EventType string `json:"event_type"`
	OrderNo   string `json:"order_no"`
	Status    string `json:"status"` // of the row in the consume log, now
	ReplayID  string `json:"replay_id"`
	People    int64  `json:"people,omitempty"`
}

// Reapply applies an event again whose effect was lost though the log says applied. It is the one verb that goes past the
// log; the effect's own unique key alone makes it happen once. The message comes from payment, and the hash in the log
// vouches for it.
func (r *Replays) Reapply(ctx context.Context, by audit.By, eventID string, sure Confirmation, dry bool) (Reapplied, error) {
	var told Reapplied
	found, err := r.look(ctx, event.Event{ID: eventID})
	switch {
	case err != nil:
		return told, err
	case found.Status == "":
		return told, fmt.Errorf("%w: this group has not seen the event; use a replay", ErrNotApplied)
	case found.Status != string(inbox.StatusSuccess):
		return told, fmt.Errorf("%w: the event is %s in the consume log, and reapply is for SUCCESS; use a replay", ErrNotApplied, found.Status)
	case r.Source == nil:
		return told, ErrNoSource
	case r.ReachesPeople && sure.People != 1 && !dry:
		return told, fmt.Errorf("%w: 1 message may reach somebody; confirm it with that number, %d was given", ErrPeople, sure.People)
	}
	record, err := r.Source.Record(ctx, eventID)
	if err != nil {
		return told, fmt.Errorf("asking payment for event %s: %w", eventID, err)
	}
	e, err := event.Decode(record)
	if err != nil {
		return told, fmt.Errorf("%w: %w", ErrNotApplied, err)
	}
	told = Reapplied{EventID: e.ID, EventType: e.Type, OrderNo: e.AggregateID, Status: string(inbox.StatusRetry),
		ReplayID: "a-" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12]}
	if r.ReachesPeople {
		told.People = 1
	}
	err = audit.Act(ctx, r.DB, by, "reapply", "event/"+e.ID, dry, func(tx *gorm.DB) (string, error) {
		err := inbox.Reapply(ctx, tx, r.Group, record, told.ReplayID)
		return fmt.Sprintf("%s of order %s, %s", e.Type, e.AggregateID, told.ReplayID), err
	})
	switch {
	case errors.Is(err, inbox.ErrNotApplied):
		return told, fmt.Errorf("%w: %w", ErrNotApplied, err)
	case err == nil && !dry:
		r.Log.Warn("an event is applied again", "group", r.Group, "event_id", e.ID, "order_no", e.AggregateID, "actor", by.Actor)
		r.Nudge()
	}
	return told, err
}
