// Package audit keeps who changed something by hand, what and why.
//
// The row is written in the transaction that makes the change: there is no change without its row and no row without its
// change. Rows are never updated or deleted; a trigger sees to it.
//
// The package does not own who may do what; that is the ops token's.
package audit

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/postgres"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations create the table in a service's own database: an act is recorded where the rows are that it changes.
var Migrations = postgres.Files("audit", files)

// By is who acts and why; both are required, as text that a person can read.
type By struct {
	Actor  string `json:"actor"`
	Reason string `json:"reason"`
}

// ErrNobody is the answer to an act without a person or a reason.
var ErrNobody = errors.New(`send {"actor": "who you are", "reason": "why"}, at most 128 and 512 bytes of text`)

// From reads who acts and why from a request's JSON body.
func From(r *http.Request) (By, error) {
	var by By
	if err := ops.ReadJSON(r, &by); err != nil {
		return By{}, fmt.Errorf("%w: %w", ErrNobody, err)
	}
	return by, by.Check()
}

// Check says whether there are a person and a reason, and whether the table can keep them: Postgres refuses NUL in a text.
func (by By) Check() error {
	if !sayable(by.Actor, 128) || !sayable(by.Reason, 512) {
		return ErrNobody
	}
	return nil
}

func sayable(s string, most int) bool {
	return strings.TrimSpace(s) != "" && len(s) <= most && ops.IsText(s)
}

// Write records an act in the caller's transaction, and refuses a handle outside one.
func Write(ctx context.Context, tx *gorm.DB, by By, verb, object, detail string) error {
	if !postgres.InTx(tx) {
		return errors.New("audit.Write needs a handle inside the transaction that makes the change")
	}
	row := map[string]any{"actor": by.Actor, "verb": verb, "object": object, "reason": by.Reason, "detail": detail}
	if err := tx.Session(&gorm.Session{NewDB: true, Context: ctx}).Table("t_audit").Create(row).Error; err != nil {
		return fmt.Errorf("recording %s of %s: %w", verb, object, err)
	}
	return nil
}

// Entry is one act, as it was recorded.
type Entry struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Verb   string    `json:"verb"`
	Reason string    `json:"reason"`
	Detail string    `json:"detail,omitempty"`
}

// Of lists what was done to an object, oldest first.
func Of(ctx context.Context, db *gorm.DB, object string) ([]Entry, error) {
	found := []Entry{}
	err := db.WithContext(ctx).Table("t_audit").Where("object = ?", object).Order("id").Limit(1000).Find(&found).Error
	if err != nil {
		return nil, fmt.Errorf("reading the audit of %s: %w", object, err)
	}
	return found, nil
}
