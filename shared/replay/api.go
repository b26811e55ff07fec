package replay

import (
	"errors"
	"net/http"
	"strconv"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/ops"
)

// Mount opens the replays to operators. Every POST takes {"actor", "reason"}, and with ?dry_run=true does all that it
// would do, answers with what would be, and rolls back; but rehearse, which is always rolled back, refuses it.
//
//	GET  /ops/replays                 POST /ops/replays {selection, rate}   plan
//	GET  /ops/replays/{id}            POST /ops/replays/{id}/{verb}         rehearse, run, pause, resume, cancel
//	GET  /ops/replays/{id}/items      POST /ops/reapply {event_id}
func (r *Replays) Mount(s *ops.Server) {
	s.Handle("GET /ops/replays", r.answer(func(req *http.Request) (any, error) {
		jobs, err := r.List(req.Context())
		return map[string]any{"group": r.Group, "replays": jobs}, err
	}))
	s.Handle("GET /ops/replays/{id}", r.answer(r.show))
	s.Handle("GET /ops/replays/{id}/items", r.answer(r.items))
	s.Handle("POST /ops/replays", r.answer(r.plan))
	s.Handle("POST /ops/replays/{id}/{verb}", r.answer(r.act))
	s.Handle("POST /ops/reapply", r.answer(r.reapply))
}

func (r *Replays) show(req *http.Request) (any, error) {
	job, err := r.Get(req.Context(), req.PathValue("id"))
	if err != nil {
		return nil, err
	}
	acts, err := audit.Of(req.Context(), r.DB, object(job.JobID))
	return map[string]any{"group": r.Group, "replay": job, "audit": acts}, err
}

func (r *Replays) items(req *http.Request) (any, error) {
	const page = 100
	after, err := strconv.Atoi("0" + req.URL.Query().Get("after"))
	if err != nil {
		return nil, errBody
	}
	items, err := r.Contents(req.Context(), req.PathValue("id"), after, page)
	next := ""
	if len(items) == page {
		next = strconv.Itoa(items[page-1].Position)
	}
	return map[string]any{"group": r.Group, "items": items, "next": next}, err
}

var (
	errBody = errors.New("the request cannot be read")
	// errDry keeps a dry run from leaving a row in the audit, and a rehearsal from leaving none.
	errDry = errors.New("a rehearsal is rolled back by itself and recorded; ask for it without dry_run")
)

// asked is every POST's body.
type asked struct {
	audit.By
	Confirmation
	Selection Selection `json:"selection"`
	Rate      int       `json:"rate"`
	EventID   string    `json:"event_id"`
}

func read(req *http.Request) (a asked, dry bool, err error) {
	if err := ops.ReadJSON(req, &a); err != nil {
		return a, false, errors.Join(errBody, err)
	}
	return a, audit.DryRun(req), a.Check()
}

func (r *Replays) plan(req *http.Request) (any, error) {
	a, dry, err := read(req)
	if err != nil {
		return nil, err
	}
	return r.Plan(req.Context(), a.By, a.Selection, a.Rate, dry)
}

func (r *Replays) act(req *http.Request) (any, error) {
	a, dry, err := read(req)
	if err != nil {
		return nil, err
	}
	id, verb := req.PathValue("id"), req.PathValue("verb")
	if verb == "rehearse" {
		if dry {
			return nil, errDry
		}
		return r.Rehearse(req.Context(), a.By, id)
	}
	if from[verb] == nil {
		return nil, ErrNoJob
	}
	job, err := r.Do(req.Context(), a.By, id, verb, a.Confirmation, dry)
	if err == nil && !dry {
		r.Log.Warn("decision about a replay", "group", r.Group, "replay_id", id, "decision", verb, "actor", a.Actor)
	}
	return job, err
}

func (r *Replays) reapply(req *http.Request) (any, error) {
	a, dry, err := read(req)
	if err != nil {
		return nil, err
	}
	return r.Reapply(req.Context(), a.By, a.EventID, a.Confirmation, dry)
}

// answer turns a function of a request into a handler.
func (r *Replays) answer(fn func(req *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := fn(req)
		is := func(some ...error) bool {
			for _, one := range some {
				if errors.Is(err, one) {
					return true
				}
			}
			return false
		}
		switch {
		case err == nil:
			ops.WriteJSON(w, http.StatusOK, body)
		case is(ErrNoJob):
			ops.Problem(w, http.StatusNotFound, "not-found", err.Error())
		case is(errBody, errDry, audit.ErrNobody, ErrSelection):
			ops.Problem(w, http.StatusBadRequest, "bad-body", err.Error())
		case is(ErrState, ErrOther, ErrAltered, ErrNoSource, ErrNoEvent, ErrNotApplied):
			ops.Problem(w, http.StatusConflict, "not-possible", err.Error())
		case is(ErrPeople):
			ops.Problem(w, http.StatusConflict, "confirm-people", err.Error())
		default:
			r.Log.ErrorContext(req.Context(), "answering about replays", "group", r.Group, "path", req.Pattern, "error", err)
			ops.Problem(w, http.StatusServiceUnavailable, "unavailable", "the database or payment did not answer; see the log")
		}
	})
}
