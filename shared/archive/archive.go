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
	"strings"
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

// Move moves what is final, batch by batch, and returns how many rows that were. Any number may run at once. A row that the
// archive does not take stops no other: it stays where it is, and the error at the end names it.
func Move(ctx context.Context, db *gorm.DB, keep Retention, rows Rows) (moved int, err error) {
	if err := keep.Validate(); err != nil {
		return 0, err
	}
	if keep.Batch == 0 {
		keep.Batch = 1000
	}
	m := mover{db: db, keep: keep, rows: rows}
	for n := keep.Batch; err == nil && n == keep.Batch; {
		n, err = m.move(ctx, nil)
	}
	if err = errors.Join(m.told(), err); err != nil {
		err = fmt.Errorf("archiving %s: %w", rows.From, err)
	}
	return m.moved, err
}

// mover is one run.
type mover struct {
	db    *gorm.DB
	keep  Retention
	rows  Rows
	moved int
	left  []string // keys of rows that the archive does not take; the next run tries them again
	why   error    // of the first of them
}

const (
	maxLeft  = 100 // so many are no matter of single rows any more, and the run ends
	maxNamed = 10
)

// move moves the rows of these keys, or any batch if there are none, and returns how many it took in hand. If the archive
// refuses one of them, each half is tried alone, down to the row that is to blame.
func (m *mover) move(ctx context.Context, only []string) (int, error) {
	var keys []string
	err := postgres.Transaction(ctx, m.db, func(tx *gorm.DB) (err error) {
		keys, err = m.batch(tx.WithContext(ctx), only)
		return err
	})
	switch half := len(keys) / 2; {
	case err == nil:
		m.moved += len(keys)
	case len(keys) == 0 || !ofARow(err):
		return len(keys), err
	case len(m.left) == maxLeft:
		return len(keys), fmt.Errorf("there are more, and this run ends: %w", err)
	case half == 0:
		if m.left = append(m.left, keys...); m.why == nil {
			m.why = err
		}
	default:
		for _, part := range [][]string{keys[:half], keys[half:]} {
			if _, err := m.move(ctx, part); err != nil {
				return len(keys), err
			}
		}
	}
	return len(keys), nil
}

var errOther = errors.New("the archive holds something else under the same key")

// ofARow reports whether an error may be the fault of one row. Classes: 22 and 23 are a row's values, among them that no
// partition takes it; 42P17 is a partition that cannot be made beside those there are.
func ofARow(err error) bool {
	code := postgres.Code(err)
	return errors.Is(err, errOther) || strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23") || code == "42P17"
}

// told names the rows that are left.
func (m *mover) told() error {
	n := len(m.left)
	if n == 0 {
		return nil
	}
	more := ""
	if n > maxNamed {
		more = fmt.Sprintf(" and %d more", n-maxNamed)
	}
	return fmt.Errorf("the archive does not take %d of the rows, and nothing is deleted of them: %s%s; the first: %w",
		n, strings.Join(m.left[:min(n, maxNamed)], ", "), more, m.why)
}

// Rows that another archiver has are skipped.
const (
	pick   = `SELECT %s FROM %s WHERE (%s) AND (%s) AND (%s) LIMIT @batch FOR UPDATE SKIP LOCKED`
	copied = `INSERT INTO %s (%s) SELECT %s FROM %s WHERE (%s) AND %s IN @keys ON CONFLICT DO NOTHING`
	// An archived copy that was there before and says something else is found by the digest.
	digest = `SELECT count(*) || '/' || coalesce(md5(string_agg(md5(row(%s)::text), '' ORDER BY %s)), '') FROM %s WHERE (%s) AND %s IN @keys`
	remove = `DELETE FROM %s WHERE (%s) AND %s IN @keys`
)

// batch returns the keys that it picked, also with an error.
func (m *mover) batch(tx *gorm.DB, only []string) (keys []string, err error) {
	r := m.rows
	args := map[string]any{"batch": m.keep.Batch, "window": m.keep.Window.Seconds(), "only": only, "left": m.left}
	for name, value := range r.Args {
		args[name] = value
	}
	which := "true"
	switch {
	case len(only) > 0:
		which = r.Key + " IN @only"
	case len(m.left) > 0:
		which = r.Key + " NOT IN @left"
	}
	if err := tx.Raw(fmt.Sprintf(pick, r.Key, r.From, r.Scope, r.Final, which), args).Scan(&keys).Error; err != nil || len(keys) == 0 {
		return nil, err
	}
	args["keys"] = keys
	if r.Prepare != "" {
		if err := tx.Exec(r.Prepare, args).Error; err != nil {
			return keys, err
		}
	}
	if err := tx.Exec(fmt.Sprintf(copied, r.To, r.Columns, r.Columns, r.From, r.Scope, r.Key), args).Error; err != nil {
		return keys, err
	}
	var source, there string
	for table, sum := range map[string]*string{r.From: &source, r.To: &there} {
		if err := tx.Raw(fmt.Sprintf(digest, r.Columns, r.Key, table, r.Scope, r.Key), args).Scan(sum).Error; err != nil {
			return keys, err
		}
	}
	if source != there {
		return keys, errOther
	}
	return keys, tx.Exec(fmt.Sprintf(remove, r.From, r.Scope, r.Key), args).Error
}
