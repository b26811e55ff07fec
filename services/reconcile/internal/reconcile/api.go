package reconcile

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/google/uuid"

	"example.com/paycast/shared/ops"
)

// API answers POST /runs and GET /runs/{id}, both only with the operations token. A POST while a run is in progress is
// a 409 and does not join it: that run may have read what it compares before the caller asked.
func API(token string, store Store, log *slog.Logger, begun chan<- *Begun) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /runs", func(w http.ResponseWriter, r *http.Request) {
		b, err := store.Begin(r.Context())
		busy := (*BusyError)(nil)
		switch {
		case errors.As(err, &busy):
			ops.Problem(w, http.StatusConflict, "run-in-progress", busy.Error())
		case err != nil:
			unavailable(w, r, log, err)
		default:
			begun <- b // never waits long: only one run at a time can have begun
			w.Header().Set("Location", "/runs/"+b.ID)
			ops.WriteJSON(w, http.StatusAccepted, map[string]string{"id": b.ID})
		}
	})
	mux.HandleFunc("GET /runs/{id}", func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		run, err := Run{}, ErrNoRun
		if uuid.Validate(id) == nil { // the database would choke on a NUL
			run, err = store.Get(r.Context(), id)
		}
		switch {
		case errors.Is(err, ErrNoRun):
			ops.Problem(w, http.StatusNotFound, "not-found", "there is no such run")
		case err != nil:
			unavailable(w, r, log, err)
		default:
			ops.WriteJSON(w, http.StatusOK, run)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		ops.Problem(w, http.StatusNotFound, "not-found", "there are POST /runs and GET /runs/{id}")
	})
	return ops.Guard(token, mux)
}

func unavailable(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	log.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "error", err)
	ops.Problem(w, http.StatusServiceUnavailable, "unavailable", "the database could not be asked; try again")
}
