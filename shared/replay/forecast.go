package replay

import (
	"context"
	"errors"
	"fmt"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
)

// What the plan expects of a message. The first three are begun by a run; the others are settled by the plan, with the
// same word as their result.
const (
	New        = "new"        // nothing of it is done
	Superseded = "superseded" // a later version of its order is done: a version guard may say no
	Held       = "held"       // an unfinished earlier version goes first; the message will wait for it

	AlreadyApplied = "already_applied"
	Decided        = "decided"    // refused or discarded, finally
	Waiting        = "waiting"    // the retry lane has it already
	Conflict       = "conflict"   // another body under a known id; never applied
	Unreadable     = "unreadable" // this build cannot read it either
	Unknown        = "unknown"    // neither the group nor payment has it
	Altered        = "altered"    // the letter does not hold the bytes that were received
)

const lookUp = `
WITH known AS (
    SELECT status, request_hash FROM t_message_consume WHERE consumer_group = @group AND event_id = @id
    UNION ALL SELECT status, request_hash FROM t_message_consume_archive WHERE consumer_group = @group AND event_id = @id)
SELECT coalesce((SELECT status FROM known LIMIT 1), '') AS status, coalesce((SELECT request_hash FROM known LIMIT 1), '') AS hash,
    EXISTS (SELECT FROM t_message_consume WHERE consumer_group = @group AND aggregate_id = @aggregate AND aggregate_version < @version
        AND status IN ('PROCESSING', 'RETRY', 'WAITING', 'DEAD') AND NOT skipped) AS earlier,
    EXISTS (SELECT FROM t_message_consume WHERE consumer_group = @group AND aggregate_id = @aggregate AND aggregate_version > @version
        AND status = 'SUCCESS' AND outcome = 'applied') AS later`

// forecast fills in what would become of the item now.
func (r *Replays) forecast(ctx context.Context, item *Item) error {
	d, why, err := r.delivery(ctx, item)
	if err != nil {
		return err
	}
	if why == "" {
		why, err = r.lookUp(ctx, d.Event)
		if err != nil {
			return err
		}
	}
	item.Forecast, item.State = why, "PENDING"
	if why != New && why != Superseded && why != Held {
		item.State, item.Result = "SETTLED", &why
	}
	return nil
}

// delivery gives the message of an item as it would be handled; or the forecast, when there is none to handle.
func (r *Replays) delivery(ctx context.Context, item *Item) (d inbox.Delivery, forecast string, err error) {
	switch {
	case item.LetterID != nil:
		var letter inbox.Letter
		letter, d, err = inbox.LetterDelivery(ctx, r.DB, r.Group, *item.LetterID)
		switch {
		case errors.Is(err, inbox.ErrUnreadable):
			return d, Unreadable, nil
		case errors.Is(err, inbox.ErrAltered):
			return d, Altered, nil
		case err == nil && letter.ErrorClass == inbox.ClassConflict:
			return d, Conflict, nil
		}
	case item.EventType != nil && item.Forecast == "": // a row of the log, which holds no message and needs none
		status, err := r.statusOf(ctx, *item.EventID)
		return d, status, err
	case r.Source == nil:
		return d, "", ErrNoSource
	default:
		var record event.Record
		record, err = r.Source.Record(ctx, *item.EventID)
		switch {
		case errors.Is(err, ErrNoEvent):
			return d, Unknown, nil
		case err == nil:
			d = inbox.Delivery{Group: r.Group, Record: record}
			if d.Event, err = event.Decode(record); err != nil {
				return d, Unreadable, nil
			}
		}
	}
	if err != nil {
		return d, "", err
	}
	describe(item, d.Event)
	return d, "", nil
}

func (r *Replays) statusOf(ctx context.Context, id string) (string, error) {
	found, err := r.look(ctx, event.Event{ID: id})
	return forecastOf(found.Status), err
}

type looked struct {
	Status, Hash   string
	Earlier, Later bool
}

func (r *Replays) look(ctx context.Context, e event.Event) (found looked, err error) {
	err = r.DB.WithContext(ctx).Raw(lookUp, map[string]any{
		"group": r.Group, "id": e.ID, "aggregate": e.AggregateID, "version": e.AggregateVersion,
	}).Scan(&found).Error
	if err != nil {
		return found, fmt.Errorf("looking up an event in the consume log: %w", err)
	}
	return found, nil
}

func (r *Replays) lookUp(ctx context.Context, e event.Event) (string, error) {
	found, err := r.look(ctx, e)
	switch {
	case err != nil:
		return "", err
	case found.Hash != "" && found.Hash != e.Hash():
		return Conflict, nil
	case found.Status != "" && found.Status != string(inbox.StatusDead):
		return forecastOf(found.Status), nil
	case found.Earlier:
		return Held, nil
	case found.Later:
		return Superseded, nil
	}
	return New, nil
}

func forecastOf(status string) string {
	switch inbox.Status(status) {
	case inbox.StatusSuccess:
		return AlreadyApplied
	case inbox.StatusRejected:
		return Decided
	default:
		return Waiting
	}
}
