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
	db     *gorm.DB
	index  *elastic.Index
	source source
	guard  *consumer.Guard
}

// newProjection has every event apply its order as it is now when an earlier version is missing: the event itself would
// do, but a gap says that something went wrong, and the owner knows best. Without a source the event does.
func newProjection(db *gorm.DB, index *elastic.Index, src source, reg prometheus.Registerer) projection {
	p := projection{db: db, index: index, source: src}
	gaps := consumer.Gaps{}
	if src.payment.BaseURL != "" {
		for _, t := range event.Types() {
			gaps[t] = consumer.Healed(p.heal)
		}
	}
	p.guard = consumer.NewGuard(reg, Group, gaps)
	return p
}

// write puts the order as of this event into the index.
func (p projection) write(ctx context.Context, e event.Event) error {
	o, err := e.Order()
	if err != nil {
		return consumer.BadData(err)
	}
	last, err := p.lastApplied(ctx, o.OrderNo)
	if err != nil {
		return err
	}
	// The index would refuse an older version too, unless somebody has deleted the document: then an old event must not
	// bring it back.
	if err := p.guard.Admit(ctx, last, e); err != nil {
		return err
	}
	outcome, err := p.put(ctx, documentOf(o))
	if outcome == elastic.Stale {
		return p.guard.Supersede()
	}
	return err
}

// put writes a document with its order's version, and the index has the last word. Same as what is there: this version's
// write, earlier, whose answer or whose log was lost.
func (p projection) put(ctx context.Context, d document) (elastic.Outcome, error) {
	outcome, err := p.index.Put(ctx, d.OrderNo, d.Version, d)
	switch {
	case elastic.Down(err):
		return 0, consumer.Down(err)
	case errors.Is(err, elastic.ErrDocument):
		return 0, consumer.BadData(err)
	case err != nil:
		return 0, consumer.Transient(err)
	}
	return outcome, nil
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
	return p.raise(tx, documentOf(o))
}

func (projection) raise(db *gorm.DB, d document) error {
	if err := db.Exec(raiseVersion, d.OrderNo, d.Version, d.digest()).Error; err != nil {
		return fmt.Errorf("recording the last applied version: %w", err)
	}
	return nil
}
