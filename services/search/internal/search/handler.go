package search

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/elastic"
	"example.com/paycast/shared/event"
)

// projection is the index, with what the database knows of it.
type projection struct {
	db               *gorm.DB
	index            *elastic.Index
	gaps, superseded prometheus.Counter
}

func newProjection(db *gorm.DB, index *elastic.Index, reg prometheus.Registerer) projection {
	p := projection{
		db: db, index: index,
		gaps: prometheus.NewCounter(prometheus.CounterOpts{Name: "projection_version_gaps_total",
			Help: "Events applied although an earlier version had not been seen. Allowed here: each holds the whole order."}),
		superseded: prometheus.NewCounter(prometheus.CounterOpts{Name: "projection_superseded_total",
			Help: "Events that came after a newer version of their order and changed nothing."}),
	}
	reg.MustRegister(p.gaps, p.superseded)
	return p
}

// write puts the order as of this event into the index. All types of events are alike here: each carries the whole
// order, so a missing one does no harm and is not waited for.
func (p projection) write(ctx context.Context, e event.Event) error {
	o, err := e.Order()
	if err != nil {
		return consumer.BadData(err)
	}
	last, err := p.lastApplied(ctx, o.OrderNo)
	if err != nil {
		return err
	}
	if last > o.Version {
		// The index would say the same, unless somebody has deleted the document: then an old event must not bring it back.
		p.superseded.Inc()
		return consumer.Superseded
	}
	outcome, err := p.index.Put(ctx, o.OrderNo, o.Version, documentOf(o))
	switch {
	case elastic.Down(err):
		return consumer.Down(err)
	case errors.Is(err, elastic.ErrDocument):
		return consumer.BadData(err)
	case err != nil:
		return consumer.Transient(err)
	case outcome == elastic.Stale:
		p.superseded.Inc()
		return consumer.Superseded
	}
	// Applied, or Same: this event's write, earlier, whose answer or whose log was lost.
	if last+1 < o.Version {
		p.gaps.Inc()
	}
	return nil
}

func (p projection) lastApplied(ctx context.Context, orderNo string) (version int64, err error) {
	err = p.db.WithContext(ctx).Raw("SELECT last_applied_version FROM t_order_search_projection WHERE order_no = ?", orderNo).
		Scan(&version).Error
	if err != nil {
		return 0, fmt.Errorf("reading the last applied version: %w", err)
	}
	return version, nil
}

// The version only rises. Two events of an order may be here at once, and the older one may come to this last.
const raiseVersion = `
INSERT INTO t_order_search_projection (order_no, last_applied_version, digest) VALUES (?, ?, ?)
ON CONFLICT (order_no) DO UPDATE
SET last_applied_version = excluded.last_applied_version, digest = excluded.digest, updated_at = now()
WHERE t_order_search_projection.last_applied_version < excluded.last_applied_version`

// record notes, in the transaction of the consume log, what write has written.
func (p projection) record(_ context.Context, tx *gorm.DB, e event.Event) error {
	o, err := e.Order()
	if err != nil {
		return consumer.BadData(err)
	}
	digest, err := documentOf(o).digest()
	if err != nil {
		return err
	}
	if err := tx.Exec(raiseVersion, o.OrderNo, o.Version, digest).Error; err != nil {
		return fmt.Errorf("recording the last applied version: %w", err)
	}
	return nil
}
