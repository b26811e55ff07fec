package consumer

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"gorm.io/gorm"

	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/postgres"
)

// getLetter shows one letter. Its contents may hold personal data, so they are shown only when asked for by name, and
// the log says that they were.
func (c *consumer) getLetter(w http.ResponseWriter, r *http.Request) {
	id, ok := letterID(w, r)
	if !ok {
		return
	}
	letter, contents, err := inbox.Show(r.Context(), c.DB, c.Group, id)
	if err != nil {
		c.refuse(w, "showing a dead letter", err)
		return
	}
	answer := map[string]any{"group": c.Group, "letter": letter}
	if r.URL.Query().Get("contents") == "true" {
		c.log.Warn("the contents of a dead letter are shown", "group", c.Group, "letter_id", id)
		answer["contents"] = contents
	}
	ops.WriteJSON(w, http.StatusOK, answer)
}

// decideLetter carries out release, discard or skip. Who and why are kept with the letter and in the log.
func (c *consumer) decideLetter(w http.ResponseWriter, r *http.Request) {
	id, ok := letterID(w, r)
	if !ok {
		return
	}
	var why inbox.Decision
	if err := json.NewDecoder(r.Body).Decode(&why); err != nil || why.By == "" || why.Reason == "" || len(why.By) > 128 || len(why.Reason) > 512 {
		ops.Problem(w, http.StatusBadRequest, "bad-body", `send {"by": "who decides", "reason": "why"}`)
		return
	}
	decide := map[string]func(tx *gorm.DB) error{
		"release": func(tx *gorm.DB) error { return inbox.Release(r.Context(), tx, c.Group, id, why) },
		"discard": func(tx *gorm.DB) error { return inbox.Discard(r.Context(), tx, c.Group, id, why) },
		"skip":    func(tx *gorm.DB) error { return inbox.Skip(r.Context(), tx, c.Group, id) },
	}[r.PathValue("verb")]
	if decide == nil {
		ops.Problem(w, http.StatusNotFound, "not-found", "a dead letter can be released, discarded or skipped")
		return
	}
	if err := postgres.Transaction(r.Context(), c.DB, decide); err != nil {
		c.refuse(w, "deciding about a dead letter", err)
		return
	}
	c.log.Warn("decision about a dead letter", "group", c.Group, "letter_id", id, "decision", r.PathValue("verb"),
		"by", why.By, "reason", why.Reason)
	c.nudge()
	ops.WriteJSON(w, http.StatusOK, map[string]any{"letter_id": id, "decision": r.PathValue("verb")})
}

func letterID(w http.ResponseWriter, r *http.Request) (int64, bool) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		ops.Problem(w, http.StatusNotFound, "not-found", "there is no such dead letter")
		return 0, false
	}
	return id, true
}

// refuse answers why a decision cannot be carried out.
func (c *consumer) refuse(w http.ResponseWriter, doing string, err error) {
	switch {
	case errors.Is(err, inbox.ErrNoLetter):
		ops.Problem(w, http.StatusNotFound, "not-found", inbox.ErrNoLetter.Error())
	case errors.Is(err, inbox.ErrClosed), errors.Is(err, inbox.ErrNotReleasable), errors.Is(err, inbox.ErrUnderWay),
		errors.Is(err, inbox.ErrNotHolding), errors.Is(err, inbox.ErrUnreadable):
		ops.Problem(w, http.StatusConflict, "not-possible", scrub(err))
	default:
		c.internal(w, doing, err)
	}
}
