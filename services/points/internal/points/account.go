package points

import (
	"fmt"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/event"
)

// kindCredit is a kind of ledger entry; cancel.go has the other one. An order has at most one of each.
const kindCredit = "CREDIT"

// entry is a row of t_ledger. Rows are only ever added; a trigger refuses everything else.
type entry struct {
	EntryID   int64 `gorm:"primaryKey;->"`
	UserID    string
	OrderNo   string
	Kind      string
	Points    int64
	EventID   string
	CreatedAt time.Time `gorm:"->"`
}

func (entry) TableName() string { return "t_ledger" }

// Credit adds points for a paid order, once per order and once per event.
//
// FLOW 8/9
func Credit(tx *gorm.DB, eventID string, o event.Order, points int64) error {
	return post(tx, entry{UserID: o.UserID, OrderNo: o.OrderNo, Kind: kindCredit, Points: points, EventID: eventID})
}

// insertEntry names no key to conflict with, because there are two: zero rows say that one of them is taken, and post
// looks which. Catching a unique violation instead would leave the transaction unusable.
const insertEntry = `
INSERT INTO t_ledger (user_id, order_no, kind, points, event_id) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`

const openAccount = `INSERT INTO t_account (user_id, balance) VALUES (?, 0) ON CONFLICT (user_id) DO NOTHING`

// The balance changes by a sum inside the database. Reading it, adding and writing it back would lose an update.
const addToBalance = `UPDATE t_account SET balance = balance + ?, updated_at = now() WHERE user_id = ?`

// post writes an entry and its share of the balance. An entry of the same event that is there already is success: the
// consume log let the event through again because its row had been lost or reset.
func post(tx *gorm.DB, e entry) error {
	inserted := tx.Exec(insertEntry, e.UserID, e.OrderNo, e.Kind, e.Points, e.EventID)
	if inserted.Error != nil {
		return fmt.Errorf("writing a ledger entry: %w", inserted.Error)
	}
	if inserted.RowsAffected == 0 {
		var there entry
		if err := tx.Where("order_no = ? AND kind = ?", e.OrderNo, e.Kind).Take(&there).Error; err != nil {
			return fmt.Errorf("reading the ledger entry that is there: %w", err)
		}
		if there.EventID != e.EventID {
			return consumer.Refused(fmt.Errorf("the order has a %s from another event", e.Kind))
		}
		return nil
	}
	if err := tx.Exec(openAccount, e.UserID).Error; err != nil {
		return fmt.Errorf("opening the account: %w", err)
	}
	if err := tx.Exec(addToBalance, e.Points, e.UserID).Error; err != nil {
		return fmt.Errorf("changing the balance: %w", err)
	}
	return nil
}
