package consumer

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"gorm.io/gorm"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/ops"
)

// getLetter shows one letter and what was done to it, without its contents.
func (c *consumer) getLetter(w http.ResponseWriter, r *http.Request) {
	id, ok := letterID(w, r)
	if !ok {
		return
	}
	letter, _, err := inbox.Show(r.Context(), c.DB, c.Group, id)
	if err != nil {
		c.refuse(w, "showing a dead letter", err)
		return
	}
	acts, err := audit.Of(r.Context(), c.DB, letterObject(id))
	if err != nil {
		c.internal(w, "reading the audit of a dead letter", err)
		return
	}
	ops.WriteJSON(w, http.StatusOK, map[string]any{"group": c.Group, "letter": letter, "audit": acts})
}

// letterContents shows the bytes as they were received. They may hold personal data, so they are given only to a person
// with a reason, and the audit says to whom.
func (c *consumer) letterContents(w http.ResponseWriter, r *http.Request) {
	id, by, ok := c.asked(w, r)
	if !ok {
		return
	}
	var contents inbox.Contents
	// Never dry: that would show them and record nothing.
	err := audit.Act(r.Context(), c.DB, by, "see contents", letterObject(id), false, func(tx *gorm.DB) (_ string, err error) {
		_, contents, err = inbox.Show(r.Context(), tx, c.Group, id)
		return "", err
	})
	if err != nil {
		c.refuse(w, "showing the contents of a dead letter", err)
		return
	}
	c.log.Warn("the contents of a dead letter are shown", "group", c.Group, "letter_id", id, "actor", by.Actor)
	ops.WriteJSON(w, http.StatusOK, map[string]any{"group": c.Group, "contents": contents})
}

// decideLetter carries out release, discard or skip. Who and why are recorded with the change, both or neither. With
// ?dry_run=true all of it is done, the answer shows the letter as it would be, and the transaction is rolled back.
func (c *consumer) decideLetter(w http.ResponseWriter, r *http.Request) {
	id, by, ok := c.asked(w, r)
	if !ok {
		return
	}
	verb, why := r.PathValue("verb"), inbox.Decision{By: by.Actor, Reason: by.Reason}
	decide := map[string]func(tx *gorm.DB) error{
		"release": func(tx *gorm.DB) error { return inbox.Release(r.Context(), tx, c.Group, id, why) },
		"discard": func(tx *gorm.DB) error { return inbox.Discard(r.Context(), tx, c.Group, id, why) },
		"skip":    func(tx *gorm.DB) error { return inbox.Skip(r.Context(), tx, c.Group, id) },
	}[verb]
	if decide == nil {
		ops.Problem(w, http.StatusNotFound, "not-found", "a dead letter can be released, discarded or skipped")
		return
	}
	var letter inbox.Letter
	dry := audit.DryRun(r)
	err := audit.Act(r.Context(), c.DB, by, verb, letterObject(id), dry, func(tx *gorm.DB) (place string, err error) {
		if err = decide(tx); err == nil {
			letter, _, err = inbox.Show(r.Context(), tx, c.Group, id)
		}
		return fmt.Sprintf("%s, at %s/%d/%d", letter.ErrorClass, letter.Topic, letter.Partition, letter.Offset), err
	})
	if err != nil {
		c.refuse(w, "deciding about a dead letter", err)
		return
	}
	if !dry {
		c.log.Warn("decision about a dead letter", "group", c.Group, "letter_id", id, "decision", verb, "actor", by.Actor)
		c.nudge()
	}
	ops.WriteJSON(w, http.StatusOK, letter)
}

// eraseLetters empties what names a customer, in letters and in the lane. The audit tells which events were discarded for
// it, and not whose they were. ?dry_run=true as above.
func (c *consumer) eraseLetters(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		audit.By
		UserID string `json:"user_id"`
	}
	if err := ops.ReadJSON(r, &asked); err != nil || asked.Check() != nil || asked.UserID == "" {
		ops.Problem(w, http.StatusBadRequest, "bad-body", `send {"actor": "who you are", "reason": "why", "user_id": "whose"}`)
		return
	}
	var erased inbox.Erased
	dry := audit.DryRun(r)
	err := audit.Act(r.Context(), c.DB, asked.By, "erase", "letters", dry, func(tx *gorm.DB) (_ string, err error) {
		if erased, err = inbox.Erase(r.Context(), tx, c.Group, asked.UserID, inbox.Decision{By: asked.Actor, Reason: asked.Reason}); err != nil {
			return "", err
		}
		for _, id := range erased.Events {
			if err := audit.Write(r.Context(), tx, asked.By, "erase", "event/"+id, "it was unfinished, and is discarded"); err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("%d erased", erased.Letters), nil
	})
	if err != nil {
		c.refuse(w, "erasing dead letters", err)
		return
	}
	if !dry {
		c.log.Warn("what names a customer is erased", "group", c.Group, "letters", erased.Letters, "unfinished", len(erased.Events), "actor", asked.Actor)
		c.nudge()
	}
	ops.WriteJSON(w, http.StatusOK, map[string]any{"group": c.Group, "erased": erased.Letters + len(erased.Events)})
}

// asked reads which letter is meant, who asks and why, and answers what it cannot read.
func (c *consumer) asked(w http.ResponseWriter, r *http.Request) (int64, audit.By, bool) {
	id, ok := letterID(w, r)
	if !ok {
		return 0, audit.By{}, false
	}
	by, err := audit.From(r)
	if err != nil {
		ops.Problem(w, http.StatusBadRequest, "bad-body", err.Error())
		return 0, audit.By{}, false
	}
	return id, by, true
}

// letterObject is a letter's name in the audit.
func letterObject(id int64) string { return fmt.Sprintf("letter/%d", id) }

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
		errors.Is(err, inbox.ErrNotHolding), errors.Is(err, inbox.ErrUnreadable), errors.Is(err, inbox.ErrAltered):
		ops.Problem(w, http.StatusConflict, "not-possible", scrub(err))
	default:
		c.internal(w, doing, err)
	}
}
