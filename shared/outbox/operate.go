package outbox

import (
	"errors"
	"log/slog"
	"net/http"

	"gorm.io/gorm"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/postgres"
)

// Mount opens the outbox to operators: GET /ops/outbox and /ops/outbox/{id}, and POST /ops/outbox/{id}/release and /skip
// with {"actor", "reason"}. With ?dry_run=true a POST does all that it would do, answers with the row as it would be, and
// rolls back. The database needs audit.Migrations as well.
func Mount(o *ops.Server, db *gorm.DB, log *slog.Logger) {
	o.Handle("GET /ops/outbox", List(db))
	o.Handle("GET /ops/outbox/{id}", show(db))
	o.Handle("GET /ops/outbox/{id}/record", record(db))
	o.Handle("POST /ops/outbox/{id}/release", act(db, log, "release", releaseRow))
	o.Handle("POST /ops/outbox/{id}/skip", act(db, log, "skip", skipRow))
}

// releaseRow makes a row due now, with its counts at zero: its fault is repaired, or somebody will not wait for the
// backoff. A skipped row stays skipped: later events of its key have passed it, and to send it now would break their
// order.
const releaseRow = `
update t_outbox_event
set status = 'RETRY', retry_count = 0, takeover_count = 0, alone = false, next_retry_at = now(), updated_at = now()
where event_id = ? and (status = 'DEAD' and not skipped or status = 'RETRY')`

// skipRow lets the later events of a DEAD row's key pass. Consumers see a gap in its versions. The row stays.
const skipRow = `
update t_outbox_event set skipped = true, updated_at = now() where event_id = ? and status = 'DEAD' and not skipped`

var (
	errNotNow = errors.New("the row is not in a state in which this can be done")
	errDryRun = errors.New("a dry run ends here")
)

// show gives one row, and who has done what to it.
func show(db *gorm.DB) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		var answer struct {
			Row   Listed        `json:"row"`
			Audit []audit.Entry `json:"audit"`
		}
		err := db.WithContext(r.Context()).Table("t_outbox_event").Take(&answer.Row, "event_id = ?", id).Error
		if err == nil {
			answer.Audit, err = audit.Of(r.Context(), db, "outbox/"+id)
		}
		switch {
		case errors.Is(err, gorm.ErrRecordNotFound):
			noEvent(w, id)
		case err != nil:
			ops.Problem(w, http.StatusServiceUnavailable, "database", "the outbox cannot be read now")
		default:
			ops.WriteJSON(w, http.StatusOK, answer)
		}
	})
}

func noEvent(w http.ResponseWriter, id string) {
	ops.Problem(w, http.StatusNotFound, "not-found", "no event "+id+" in this outbox")
}

// act changes one row and records who did it and why, both or neither.
func act(db *gorm.DB, log *slog.Logger, verb, statement string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		by, err := audit.From(r)
		if err != nil {
			ops.Problem(w, http.StatusBadRequest, "bad-request", err.Error())
			return
		}
		var row Listed
		err = postgres.Transaction(r.Context(), db, func(tx *gorm.DB) error {
			changed := tx.Exec(statement, id)
			if changed.Error != nil {
				return changed.Error
			}
			if err := tx.Table("t_outbox_event").Take(&row, "event_id = ?", id).Error; err != nil {
				return err
			}
			if changed.RowsAffected == 0 {
				return errNotNow
			}
			if verb == "skip" {
				// After the row's own update, in a statement that sees every hold on it; see freeHeld.
				if err := tx.Exec("update t_outbox_event set held_by = null, updated_at = now() where held_by = ?", id).Error; err != nil {
					return err
				}
			}
			if err := audit.Write(r.Context(), tx, by, verb, "outbox/"+id, row.EventType+" of order "+row.OrderNo); err != nil {
				return err
			}
			if r.URL.Query().Get("dry_run") == "true" {
				return errDryRun
			}
			return nil
		})
		switch {
		case errors.Is(err, errDryRun):
			ops.WriteJSON(w, http.StatusOK, row)
		case errors.Is(err, gorm.ErrRecordNotFound):
			noEvent(w, id)
		case errors.Is(err, errNotNow):
			ops.Problem(w, http.StatusConflict, "conflict", "event "+id+" is "+row.state()+"; release needs DEAD or RETRY, skip needs DEAD, and neither a skipped row")
		case err != nil:
			log.ErrorContext(r.Context(), "an operator's change failed", "verb", verb, "event_id", id, "error", err)
			ops.Problem(w, http.StatusServiceUnavailable, "database", "nothing was changed; see the log")
		default:
			log.InfoContext(r.Context(), "an operator changed an outbox row", "verb", verb, "event_id", id, "order_no", row.OrderNo, "actor", by.Actor)
			ops.WriteJSON(w, http.StatusOK, row)
		}
	})
}

func (l Listed) state() string {
	if l.Skipped {
		return "DEAD and skipped"
	}
	return l.Status
}
