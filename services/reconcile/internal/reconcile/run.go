package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Reconciler runs reconciliations.
type Reconciler struct {
	Parts Parts
	Store Store
	Late  time.Duration
}

// Carry takes a begun run to its end. The error says that the end could not be recorded; that a part could not be asked
// is the run's own result.
func (r Reconciler) Carry(ctx context.Context, b *Begun) error {
	report, failure := r.look(ctx, b.Now)
	if ctx.Err() != nil && failure != nil {
		failure = fmt.Errorf("the process was told to stop: %w", failure)
	}
	return b.End(ctx, report, failure)
}

func (r Reconciler) look(ctx context.Context, now time.Time) (Report, error) {
	s, err := r.Parts.Snapshot(ctx)
	if err != nil {
		return Report{}, err
	}
	s.Now, s.Late = now, r.Late
	report := Compare(s)
	if report.Findings, err = r.Parts.Confirm(ctx, s, report.Findings); err != nil {
		return Report{}, fmt.Errorf("looking a second time: %w", err)
	}
	return report, nil
}

// Work carries out the runs that the API has begun, one after the other.
func (r Reconciler) Work(ctx context.Context, log *slog.Logger, m *metrics, begun <-chan *Begun) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b := <-begun:
			if err := r.Carry(ctx, b); err != nil {
				// The run stays "running" in the table and is marked failed by the next one that begins.
				log.Error("a run could not be recorded", "run", b.ID, "error", err)
				continue
			}
			run, err := r.Store.Get(context.WithoutCancel(ctx), b.ID)
			if err != nil {
				log.Error("a run could not be read back", "run", b.ID, "error", err)
				continue
			}
			m.observe(run)
			log.Info("run ended", "run", run.ID, "result", run.Status, "findings", len(run.Findings), "error", run.Error)
		}
	}
}
