package payment

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/outbox"
	"example.com/paycast/shared/postgres"
)

// answerSuccess is what the provider expects, byte for byte; anything else makes it call again for days.
const answerSuccess = `{"result":"success"}`

// outcome is what a callback came to: the receipt, and what is new about it.
type outcome struct {
	receipt  receipt
	repeated bool      // the receipt was there before
	event    bool      // an event was appended
	incident *incident // a new one
}

// errOtherBody: the webhook id was used before, for other bytes.
var errOtherBody = errors.New("webhook id seen before with another body")

// confirm settles one authentic callback.
//
// FLOW 2/9: the one transaction. The order's step, the payment, the event, the incident and the receipt are committed
// together or not at all; there is no moment at which one of them stands without the others, and none at which a
// callback is "being processed". An error means that nothing is known to be done: the provider calls again and the
// receipt, if there is one, tells the truth.
func (s *server) confirm(ctx context.Context, n notice) (outcome, error) {
	var out outcome
	err := postgres.Transaction(ctx, s.db, func(tx *gorm.DB) error {
		out = outcome{}
		// The row lock makes all callbacks and commands for one order stand in line; other orders do not wait.
		o, own, err := lockOrder(tx, n.OrderNo)
		if err != nil {
			return err
		}
		owner, err := ownerOfTrade(tx, n.TradeNo)
		if err != nil {
			return err
		}
		decided, trouble := judge(n, o, own, owner, s.merchantID)

		// The receipt goes first: its unique key waits for a copy in flight and then tells us that it was there.
		out.receipt = receipt{
			WebhookID: n.WebhookID, BodyHash: n.BodyHash, EventType: n.Type, OrderNo: n.OrderNo, Verdict: decided, Answer: answerSuccess,
		}
		if out.repeated, err = out.receipt.keep(tx); err != nil || out.repeated {
			return err
		}
		switch decided {
		case verdictPaid:
			if err := advance(tx, o, event.StatusPaid, map[string]any{"paid_at": n.PaidAt}); err != nil {
				return err
			}
			paid := payment{TradeNo: n.TradeNo, OrderNo: o.OrderNo, Amount: n.Amount, Currency: n.Currency, PaidAt: n.PaidAt}
			if err := tx.Create(&paid).Error; err != nil {
				return err
			}
			out.event = true
			return appendEvent(ctx, tx, *o, event.PaymentSucceeded, event.StatusCreated, n.TradeNo, n.TradeNo)
		case verdictClosed:
			if err := advance(tx, o, event.StatusClosed, nil); err != nil {
				return err
			}
			out.event = true
			return appendEvent(ctx, tx, *o, event.OrderClosed, event.StatusCreated, n.TradeNo, "")
		case verdictIncident:
			out.incident, err = trouble.record(tx)
			return err
		}
		return nil
	})
	return out, err
}

// keep inserts the receipt, or reads the one that stands under its webhook id.
func (r *receipt) keep(tx *gorm.DB) (repeated bool, err error) {
	added := tx.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "webhook_id"}}, DoNothing: true}).Create(r)
	if added.Error != nil || added.RowsAffected == 1 {
		return false, added.Error
	}
	var first receipt
	if err := tx.Take(&first, "webhook_id = ?", r.WebhookID).Error; err != nil {
		return false, err
	}
	if first.BodyHash != r.BodyHash {
		return false, errOtherBody
	}
	*r = first
	return true, nil
}

// lockOrder returns the order, locked until the transaction ends, and its payment; nil for what does not exist.
func lockOrder(tx *gorm.DB, orderNo string) (*order, *payment, error) {
	var o order
	err := tx.Clauses(clause.Locking{Strength: "NO KEY UPDATE"}).Take(&o, "order_no = ?", orderNo).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("locking the order: %w", err)
	}
	p, err := paymentOf(tx, orderNo)
	return &o, p, err
}

func paymentOf(tx *gorm.DB, orderNo string) (*payment, error) {
	var found []payment
	if err := tx.Limit(1).Find(&found, "order_no = ?", orderNo).Error; err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

func ownerOfTrade(tx *gorm.DB, tradeNo string) (orderNo string, err error) {
	err = tx.Model(&payment{}).Where("trade_no = ?", tradeNo).Limit(1).Pluck("order_no", &orderNo).Error
	return orderNo, err
}

// errMoved: the order is not as it was read, although it is locked. Only a write that ignores the lock does this.
var errMoved = errors.New("the order changed under its lock")

// advance makes one step of the state machine and reads the row back. The condition holds even against a writer that
// does not take the lock, such as a person with a SQL client.
func advance(tx *gorm.DB, o *order, to string, set map[string]any) error {
	changes := map[string]any{"status": to, "version": o.Version + 1, "updated_at": gorm.Expr("clock_timestamp()")}
	for name, value := range set {
		changes[name] = value
	}
	done := tx.Model(o).Clauses(clause.Returning{}).
		Where("status = ? and version = ?", o.Status, o.Version).Updates(changes)
	if done.Error == nil && done.RowsAffected != 1 {
		return errMoved
	}
	return done.Error
}

func appendEvent(ctx context.Context, tx *gorm.DB, o order, eventType, previous, cause, tradeNo string) error {
	e, err := o.event(ctx, eventType, previous, cause, tradeNo)
	if err != nil {
		return err
	}
	return outbox.Append(ctx, tx, e)
}
