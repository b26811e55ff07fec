package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"gorm.io/gorm"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/ops"
)

// Mount opens the outbox to operators. The database needs audit.Migrations as well.
//
//	GET  /ops/outbox                          see List
//	GET  /ops/outbox/{id}                     an event, and what was done to it
//	GET  /ops/outbox/{id}/record              the event with its payload, for another service; see record
//	POST /ops/outbox/{id}/release             see release; ?late=true also if later events of its order have passed it
//	POST /ops/outbox/{id}/skip                see skipRow
//	GET  /ops/outbox-destinations/{id}        a destination by its name, and what was done to it
//	POST /ops/outbox-destinations/{id}/open   see open
//
// A POST has the body {"actor", "reason"}. With ?dry_run=true it does all that it would do, answers with the thing as it
// would be, and rolls back.
func Mount(o *ops.Server, db *gorm.DB, log *slog.Logger) {
	o.Handle("GET /ops/outbox", List(db, log))
	o.Handle("GET /ops/outbox/{id}", show(db, log, events, readEvent))
	o.Handle("GET /ops/outbox/{id}/record", record(db, log))
	o.Handle("POST /ops/outbox/{id}/release", act(db, log, events, "release", release))
	o.Handle("POST /ops/outbox/{id}/skip", act(db, log, events, "skip", skip))
	o.Handle("GET /ops/outbox-destinations/{id}", show(db, log, destinations, readDestination))
	o.Handle("POST /ops/outbox-destinations/{id}/open", act(db, log, destinations, "open", open))
}

// kind is a sort of thing that operators decide about.
type kind struct {
	key, object string // in the answer, and in the audit before the id
	missing     string
}

var (
	events       = kind{"row", "outbox/", "no event %s in this outbox, or it is archived"}
	destinations = kind{"destination", "destination/", "no destination %s has been in trouble in this outbox"}
)

// refusal tells an operator why a thing is not in a state in which this can be done.
type refusal string

func (r refusal) Error() string { return string(r) }

// unreadable answers somebody who only wanted to look.
func unreadable(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	log.ErrorContext(r.Context(), "the outbox could not be read", "asked", r.URL.Path, "error", err)
	ops.Problem(w, http.StatusServiceUnavailable, "database", "the outbox cannot be read now; see the log")
}

// show gives one thing, and who has done what to it.
func show[T any](db *gorm.DB, log *slog.Logger, k kind, read func(tx *gorm.DB, id string) (T, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		thing, err := read(db.WithContext(r.Context()), id)
		var acts []audit.Entry
		if err == nil {
			acts, err = audit.Of(r.Context(), db, k.object+id)
		}
		switch {
		case errors.Is(err, gorm.ErrRecordNotFound):
			ops.Problem(w, http.StatusNotFound, "not-found", fmt.Sprintf(k.missing, id))
		case err != nil:
			unreadable(w, r, log, err)
		default:
			ops.WriteJSON(w, http.StatusOK, map[string]any{k.key: thing, "audit": acts})
		}
	})
}

// act changes one thing and records who did it and why, both or neither. do returns the thing as it then is, and what the
// audit says of it.
func act[T any](db *gorm.DB, log *slog.Logger, k kind, verb string, do func(tx *gorm.DB, id string, r *http.Request) (T, string, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		by, err := audit.From(r)
		if err != nil {
			ops.Problem(w, http.StatusBadRequest, "bad-request", err.Error())
			return
		}
		var thing T
		var detail string
		dry := audit.DryRun(r)
		err = audit.Act(r.Context(), db, by, verb, k.object+id, dry, func(tx *gorm.DB) (string, error) {
			thing, detail, err = do(tx, id, r)
			return detail, err
		})
		var refused refusal
		switch {
		case errors.Is(err, gorm.ErrRecordNotFound):
			ops.Problem(w, http.StatusNotFound, "not-found", fmt.Sprintf(k.missing, id))
		case errors.As(err, &refused):
			ops.Problem(w, http.StatusConflict, "conflict", refused.Error())
		case err != nil:
			log.ErrorContext(r.Context(), "an operator's change failed", "verb", verb, "of", k.object+id, "error", err)
			ops.Problem(w, http.StatusServiceUnavailable, "database", "nothing was changed; see the log")
		default:
			if !dry {
				log.InfoContext(r.Context(), "an operator changed the outbox", "verb", verb, "of", k.object+id, "what", detail, "actor", by.Actor)
			}
			ops.WriteJSON(w, http.StatusOK, thing)
		}
	})
}

func readEvent(tx *gorm.DB, id string) (row Listed, err error) {
	return row, tx.Table("t_outbox_event").Take(&row, "event_id = ?", id).Error
}

// lockEvent reads a row that nobody changes until the transaction ends.
func lockEvent(tx *gorm.DB, id string) (row Listed, err error) {
	return row, tx.Raw("select * from t_outbox_event where event_id = ? for update", id).Take(&row).Error
}

func (l Listed) told() string { return l.EventType + " of order " + l.OrderNo }

// releaseRow makes a row due now, with its counts at zero.
const releaseRow = `
update t_outbox_event
set status = 'RETRY', retry_count = 0, takeover_count = 0, alone = false, skipped = false, next_retry_at = now(), updated_at = now()
where event_id = ?`

// release sends a row on its way: its fault is repaired, somebody will not wait for the backoff, or it was skipped by
// mistake.
func release(tx *gorm.DB, id string, r *http.Request) (Listed, string, error) {
	row, err := lockEvent(tx, id)
	switch {
	case err != nil:
	case row.Skipped:
		err = undoSkip(tx, id, r.URL.Query().Get("late") == "true")
	case row.Status != Dead && row.Status != Retry:
		err = refusal("event " + id + " is " + row.Status + "; release needs DEAD or RETRY")
	}
	if err == nil {
		err = tx.Exec(releaseRow, id).Error
	}
	if err != nil {
		return row, "", err
	}
	row, err = readEvent(tx, id)
	return row, row.told(), err
}

// holdTail makes the later events of a row's key wait for it. A relay's claim that has locked one of them first makes this
// wait, and then finds the event to be on its way; a claim that comes later finds it held.
const holdTail = `
update t_outbox_event e set held_by = f.event_id, updated_at = now()
from t_outbox_event f
where f.event_id = ? and e.destination = f.destination and e.message_key = f.message_key
  and e.aggregate_version > f.aggregate_version and e.status in ('PENDING', 'RETRY') and e.held_by is null`

// countPassed is a statement of its own, after holdTail: it sees what a claim has taken while holdTail waited for it.
const countPassed = `
select count(*) from (
  select e.aggregate_type, e.aggregate_id, e.aggregate_version from t_outbox_event e where e.status in ('SENT', 'SENDING')
  union all
  select e.aggregate_type, e.aggregate_id, e.aggregate_version from t_outbox_archive e
) e join t_outbox_event f using (aggregate_type, aggregate_id)
where f.event_id = ? and e.aggregate_version > f.aggregate_version`

// undoSkip puts a row back at the head of its key. While nothing has passed it, it is as if it had never been skipped. After
// that its consumers would see it behind later versions, which somebody must want: late.
func undoSkip(tx *gorm.DB, id string, late bool) error {
	if err := tx.Exec(holdTail, id).Error; err != nil {
		return err
	}
	var passed int64
	if err := tx.Raw(countPassed, id).Scan(&passed).Error; err != nil {
		return err
	}
	if passed > 0 && !late {
		return refusal(fmt.Sprintf("event %s was skipped, and %d later events of its order have passed it; released now it arrives behind them: "+
			"consumers that guard versions drop it, or take it where they wait for it; ask for late if you want that", id, passed))
	}
	return nil
}

// skipRow lets the later events of a DEAD row's key pass. Consumers see a gap in its versions. The row stays.
const skipRow = `update t_outbox_event set skipped = true, next_retry_at = null, updated_at = now() where event_id = ?`

func skip(tx *gorm.DB, id string, _ *http.Request) (Listed, string, error) {
	row, err := lockEvent(tx, id)
	switch {
	case err != nil:
	case row.Skipped:
		err = refusal("event " + id + " is skipped already")
	case row.Status != Dead:
		err = refusal("event " + id + " is " + row.Status + "; skip needs DEAD")
	}
	if err == nil {
		err = tx.Exec(skipRow, id).Error
	}
	if err == nil {
		// After the row's own update, in a statement that sees every hold on it; see freeHeld.
		err = tx.Exec("update t_outbox_event set held_by = null, updated_at = now() where held_by = ?", id).Error
	}
	if err != nil {
		return row, "", err
	}
	row, err = readEvent(tx, id)
	return row, row.told(), err
}

func readDestination(tx *gorm.DB, name string) (d Destination, err error) {
	return d, tx.Table("t_outbox_destination").Take(&d, "destination = ?", name).Error
}

// open ends a destination's pause at once, without waiting for the next probe. Should it still refuse, the first row that
// is tried pauses it again.
func open(tx *gorm.DB, name string, _ *http.Request) (Destination, string, error) {
	before, err := readDestination(tx, name)
	if err != nil {
		return before, "", err
	}
	opened := tx.Exec(markOpen, map[string]any{"destination": name})
	if opened.Error == nil && opened.RowsAffected == 0 {
		return before, "", refusal("destination " + name + " is open already")
	}
	if opened.Error != nil {
		return before, "", opened.Error
	}
	after, err := readDestination(tx, name)
	return after, "paused since " + before.Since.UTC().Format("2006-01-02T15:04:05Z") + ": " + value(before.Cause), err
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
