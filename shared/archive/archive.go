// Package archive moves final rows that nobody can need where they are, from a table that is worked with to one that is
// kept.
//
//	pick (old, final, locked) ─▶ copy ─▶ compare count and digest ─▶ delete      one transaction for each batch
//
// Promise: a row is in one place or the other, whenever the process ends. Nothing is deleted that the archive does not
// hold, column by column. A window in which somebody may still need a row where it is, is refused.
//
// The package does not own which rows are final; that is its caller's condition.
package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/postgres"
)

// Retention is what an archive must not undercut.
type Retention struct {
	Window time.Duration // final rows younger than this stay
	Kafka  time.Duration // how long the topics keep records
	Replay time.Duration // how far back a replay may reach
	Batch  int           // rows of one transaction; 0 means 1000
}

// Validate refuses a window in which somebody may still need a row where it is: a consumer that reads Kafka again, or an
// operator who replays.
func (r Retention) Validate() error {
	if r.Window <= 0 || r.Kafka <= 0 || r.Replay <= 0 || r.Batch < 0 {
		return errors.New("window, Kafka's retention and the replay horizon must be positive")
	}
	if r.Window < r.Kafka || r.Window < r.Replay {
		return fmt.Errorf("archive window %v is too short: Kafka keeps records for %v and replays reach back %v, and the window must be no less than either", r.Window, r.Kafka, r.Replay)
	}
	return nil
}

// Rows are what is moved. All of it is SQL text of the program, never of a user.
type Rows struct {
	From, To string // tables; To has the columns and a unique key over Key within Scope, and within a partition if it has any
	Columns  string // all that is kept, in the order of the comparison
	Key      string // a text column that names a row within Scope
	Scope    string // a condition such as "consumer_group = @group"; "true" for the whole table
	Final    string // a condition on the rows that may go; @window is in seconds
	Prepare  string // run before the rows of @keys are copied, such as making partitions for them; "" for nothing
	Args     map[string]any
}

// Move moves what is final, batch by batch, and returns how many rows that were. Any number may run at once.
func Move(ctx context.Context, db *gorm.DB, keep Retention, rows Rows) (moved int, err error) {
	if err := keep.Validate(); err != nil {
		return 0, err
	}
	if keep.Batch == 0 {
		keep.Batch = 1000
	}
	for {
		n := 0
		err := postgres.Transaction(ctx, db, func(tx *gorm.DB) (err error) {
			n, err = batch(tx.WithContext(ctx), keep, rows)
			return err
		})
		if err != nil {
			return moved, fmt.Errorf("archiving %s: %w", rows.From, err)
		}
		if moved += n; n < keep.Batch {
			return moved, nil
		}
	}
}

// Rows that another archiver has are skipped.
const (
	pick   = `SELECT %s FROM %s WHERE (%s) AND (%s) LIMIT @batch FOR UPDATE SKIP LOCKED`
	copied = `INSERT INTO %s (%s) SELECT %s FROM %s WHERE (%s) AND %s IN @keys ON CONFLICT DO NOTHING`
	// An archived copy that was there before and says something else is found by the digest.
	digest = `SELECT count(*) || '/' || coalesce(md5(string_agg(md5(row(%s)::text), '' ORDER BY %s)), '') FROM %s WHERE (%s) AND %s IN @keys`
	remove = `DELETE FROM %s WHERE (%s) AND %s IN @keys`
)

func batch(tx *gorm.DB, keep Retention, r Rows) (int, error) {
	args := map[string]any{"batch": keep.Batch, "window": keep.Window.Seconds()}
	for name, value := range r.Args {
		args[name] = value
	}
	var keys []string
	if err := tx.Raw(fmt.Sprintf(pick, r.Key, r.From, r.Scope, r.Final), args).Scan(&keys).Error; err != nil || len(keys) == 0 {
		return 0, err
	}
	args["keys"] = keys
	if r.Prepare != "" {
		if err := tx.Exec(r.Prepare, args).Error; err != nil {
			return 0, err
		}
	}
	if err := tx.Exec(fmt.Sprintf(copied, r.To, r.Columns, r.Columns, r.From, r.Scope, r.Key), args).Error; err != nil {
		return 0, err
	}
	var source, there string
	for table, sum := range map[string]*string{r.From: &source, r.To: &there} {
		if err := tx.Raw(fmt.Sprintf(digest, r.Columns, r.Key, table, r.Scope, r.Key), args).Scan(sum).Error; err != nil {
			return 0, err
		}
	}
	if source != there {
		return 0, fmt.Errorf("the archive holds other rows under these keys (%s, expected %s); nothing is deleted", there, source)
	}
	return len(keys), tx.Exec(fmt.Sprintf(remove, r.From, r.Scope, r.Key), args).Error
}
