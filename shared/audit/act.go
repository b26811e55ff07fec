package audit

import (
	"context"
	"errors"
	"net/http"

	"gorm.io/gorm"

	"example.com/paycast/shared/postgres"
)

var errDryRun = errors.New("a dry run ends here")

// DryRun reports whether the request only asks what would be: ?dry_run=true. Another spelling is not taken for an order to
// act: ops.Server refuses it.
func DryRun(r *http.Request) bool { return r.URL.Query().Get("dry_run") == "true" }

// Act makes a change by hand with its row in the audit, both or neither. do makes it and returns what the audit says of it:
// facts for a person, never contents. It may be run again, so it must begin anew each time. An error of do changes and
// records nothing, and is returned. With dry all is done that would be done, and then rolled back.
func Act(ctx context.Context, db *gorm.DB, by By, verb, object string, dry bool, do func(tx *gorm.DB) (detail string, err error)) error {
	err := postgres.Transaction(ctx, db, func(tx *gorm.DB) error {
		detail, err := do(tx)
		if err == nil {
			err = Write(ctx, tx, by, verb, object, detail)
		}
		if err == nil && dry {
			err = errDryRun
		}
		return err
	})
	if errors.Is(err, errDryRun) {
		return nil
	}
	return err
}
