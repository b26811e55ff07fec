package reconcile

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"example.com/paycast/shared/postgres"
)

// Run is one reconciliation, as GET /runs/{id} shows it. Checked is there when it came to an end, Error when it failed.
type Run struct {
	ID        string     `json:"id"`
	Status    string     `json:"status"` // running, agree, differ or failed
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Checked   *Checked   `json:"checked"`
	Findings  []Finding  `json:"findings"`
	Error     string     `json:"error,omitempty"`
}

// BusyError says that another run is on its way.
type BusyError struct{ ID string }

func (e *BusyError) Error() string {
	run := "another run"
	if e.ID != "" { // it may be about to record itself
		run = "run " + e.ID
	}
	return run + " is in progress; it may have read what it compares before you asked, so wait for it and ask again"
}

// ErrNoRun means that there is no run with this id.
var ErrNoRun = errors.New("no such run")

// lockKey names the advisory lock of the one run per database.
const lockKey = 0x7265636f6e // "recon"

// Store keeps runs and their findings.
type Store struct{ db *gorm.DB }

// Begun is a run that this process holds. End must be called, also after a failure.
type Begun struct {
	ID    string
	Now   time.Time // of the database
	store Store
	conn  *sql.Conn // holds the lock; a process that dies lets go of it, whatever its clock says
}

// Begin starts a run, or returns a *BusyError. Runs that a dead process left behind are marked failed: whoever gets the
// lock knows that none of them is alive.
func (s Store) Begin(ctx context.Context) (*Begun, error) {
	conn, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	row := runRow{ID: uuid.NewString(), Status: Running}
	err = s.db.WithContext(ctx).Create(&row).Error
	if err == nil {
		err = s.db.WithContext(ctx).First(&row, "id = ?", row.ID).Error
	}
	if err != nil {
		unlock(ctx, conn)
		return nil, fmt.Errorf("recording a new run: %w", err)
	}
	return &Begun{ID: row.ID, Now: row.StartedAt, store: s, conn: conn}, nil
}

// Clean marks runs failed that ended with their process. It does nothing while a run is alive elsewhere.
func (s Store) Clean(ctx context.Context) error {
	conn, err := s.lock(ctx)
	if busy := (*BusyError)(nil); errors.As(err, &busy) {
		return nil
	}
	if err == nil {
		unlock(ctx, conn)
	}
	return err
}

// Only called by who holds the lock.
const sqlBuryDead = `
UPDATE t_reconcile_run
   SET status = 'failed', ended_at = now(), error = 'the process that ran it ended before the run did'
 WHERE status = 'running'`

func (s Store) lock(ctx context.Context) (*sql.Conn, error) {
	pool, err := s.db.DB()
	if err != nil {
		return nil, err
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting for a run: %w", err)
	}
	var got bool
	if err := conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1)`, lockKey).Scan(&got); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("locking for a run: %w", err)
	}
	if !got {
		_ = conn.Close()
		var running runRow
		if err := s.db.WithContext(ctx).Limit(1).Find(&running, "status = ?", Running).Error; err != nil {
			return nil, fmt.Errorf("reading the running run: %w", err)
		}
		return nil, &BusyError{ID: running.ID}
	}
	if _, err := conn.ExecContext(ctx, sqlBuryDead); err != nil {
		unlock(ctx, conn)
		return nil, fmt.Errorf("marking dead runs: %w", err)
	}
	return conn, nil
}

// unlock gives the connection back without its lock, or not at all: in the pool it would lock everybody out. A second
// call does nothing.
func unlock(ctx context.Context, conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_unlock($1)`, lockKey); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	_ = conn.Close()
}

// Only a run that is still running can end: one that lost its lock may have been marked failed by another process.
const sqlEnd = `
UPDATE t_reconcile_run
   SET status = ?, ended_at = now(), checked = ?, error = ?
 WHERE id = ? AND status = 'running'`

// End records what came of the run, all of it or nothing, also when ctx has ended, and lets the next run begin.
func (b *Begun) End(ctx context.Context, report Report, failure error) error {
	defer unlock(ctx, b.conn)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	status, checked, reason := Agree, new(string), (*string)(nil)
	switch encoded, err := json.Marshal(report.Checked); {
	case err != nil:
		return err
	case failure != nil:
		text := failure.Error()
		status, checked, reason, report.Findings = Failed, nil, &text, nil
	case len(report.Findings) > 0:
		status, *checked = Differ, string(encoded)
	default:
		*checked = string(encoded)
	}
	items := make([]itemRow, 0, len(report.Findings))
	for i, f := range report.Findings {
		items = append(items, itemRow{RunID: b.ID, ItemNo: i + 1, Kind: f.Kind, Grp: f.Group,
			OrderNo: f.OrderNo, EventID: f.EventID, Detail: f.Detail, State: f.State})
	}
	return postgres.Transaction(ctx, b.store.db, func(tx *gorm.DB) error {
		ended := tx.Exec(sqlEnd, status, checked, reason, b.ID)
		if ended.Error != nil {
			return fmt.Errorf("recording the end of run %s: %w", b.ID, ended.Error)
		}
		if ended.RowsAffected == 0 {
			return fmt.Errorf("run %s was ended by another process meanwhile", b.ID)
		}
		if err := tx.CreateInBatches(items, 500).Error; err != nil {
			return fmt.Errorf("recording the findings of run %s: %w", b.ID, err)
		}
		// Before the commit: whoever sees the end of this run may begin the next one at once. Should one begin even
		// earlier, its sqlBuryDead waits for this row and then finds it ended.
		unlock(ctx, b.conn)
		return nil
	})
}

// Get returns a run with its findings, or ErrNoRun.
func (s Store) Get(ctx context.Context, id string) (Run, error) {
	var row runRow
	err := s.db.WithContext(ctx).First(&row, "id = ?", id).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return Run{}, ErrNoRun
	}
	var items []itemRow
	if err == nil {
		err = s.db.WithContext(ctx).Order("item_no").Find(&items, "run_id = ?", id).Error
	}
	if err != nil {
		return Run{}, fmt.Errorf("reading run %s: %w", id, err)
	}
	run := Run{ID: row.ID, Status: row.Status, StartedAt: row.StartedAt, EndedAt: row.EndedAt, Findings: []Finding{}}
	if row.Error != nil {
		run.Error = *row.Error
	}
	if row.Checked != nil {
		run.Checked = new(Checked)
		if err := json.Unmarshal([]byte(*row.Checked), run.Checked); err != nil {
			return Run{}, fmt.Errorf("reading what run %s checked: %w", id, err)
		}
	}
	for _, i := range items {
		run.Findings = append(run.Findings, Finding{Kind: i.Kind, Group: i.Grp,
			OrderNo: i.OrderNo, EventID: i.EventID, Detail: i.Detail, State: i.State})
	}
	return run, nil
}
