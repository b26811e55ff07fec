package points

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"example.com/paycast/shared/facts"
)

const selectEffects = `
SELECT event_id, kind, min(entry_id) AS ref, min(user_id) AS user_id, sum(abs(points)) AS amount, count(*) AS copies
FROM t_ledger WHERE event_id IN ? GROUP BY event_id, kind`

// effects reads what each event did from the ledger, not from the log: an applied event without its entry is damage.
func effects(db *gorm.DB) func(context.Context, []facts.Fact) error {
	return func(ctx context.Context, page []facts.Fact) error {
		at := map[string]*facts.Fact{}
		ids := make([]string, len(page))
		for i := range page {
			ids[i], at[page[i].EventID] = page[i].EventID, &page[i]
		}
		var rows []struct {
			EventID, Kind, Ref, UserID string
			Amount                     int64
			Copies                     int
		}
		if err := db.WithContext(ctx).Raw(selectEffects, ids).Scan(&rows).Error; err != nil {
			return fmt.Errorf("reading ledger entries: %w", err)
		}
		for _, r := range rows {
			at[r.EventID].Effect = &facts.Effect{Kind: r.Kind, Ref: r.Ref, UserID: r.UserID, Amount: r.Amount, Copies: r.Copies}
		}
		return nil
	}
}

// One statement is one snapshot: entries that no finished event of their order explains, also no archived one, and
// balances that are not the sum of their entries.
const selectFaults = `
WITH finished AS (
    SELECT event_id, aggregate_id FROM t_message_consume WHERE consumer_group = @group AND status = 'SUCCESS'
    UNION ALL
    SELECT event_id, aggregate_id FROM t_message_consume_archive WHERE consumer_group = @group AND status = 'SUCCESS')
SELECT l.entry_id::text AS ref, l.order_no, l.event_id, 'a ledger entry without a finished consume-log row of its order' AS detail
FROM t_ledger l LEFT JOIN finished f ON f.event_id = l.event_id AND f.aggregate_id = l.order_no
WHERE f.event_id IS NULL
UNION ALL
SELECT coalesce(a.user_id, s.user_id), '', '', format('the balance is %s and its entries sum up to %s', coalesce(a.balance, 0), coalesce(s.points, 0))
FROM t_account a FULL JOIN (SELECT user_id, sum(points) AS points FROM t_ledger GROUP BY user_id) s USING (user_id)
WHERE coalesce(a.balance, 0) <> coalesce(s.points, 0)
LIMIT 1000`

// faults finds damage that no event leads to.
func faults(db *gorm.DB) func(context.Context) ([]facts.Fault, error) {
	return func(ctx context.Context) ([]facts.Fault, error) {
		var rows []facts.Fault
		if err := db.WithContext(ctx).Raw(selectFaults, map[string]any{"group": Group}).Scan(&rows).Error; err != nil {
			return nil, fmt.Errorf("comparing the ledger: %w", err)
		}
		return rows, nil
	}
}
