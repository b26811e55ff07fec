package payment

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/postgres"
)

// newOrder is the body of POST /orders.
type newOrder struct {
	UserID   string `json:"user_id"`
	Phone    string `json:"phone"`
	Title    string `json:"title"`
	Amount   *minor `json:"amount"`
	Currency string `json:"currency"`
}

const (
	maxTitle  = 200               // characters
	maxAmount = 1_000_000_000_000 // minor units; sums over many orders stay far from the end of int64
)

var (
	phoneNumber = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`) // E.164
	keyForm     = regexp.MustCompile(`^[!-~]{1,128}$`)
)

// check names every field that is wrong, never its value.
func (n newOrder) check() error {
	var bad []error
	if n.Amount == nil || *n.Amount < 1 || *n.Amount > maxAmount {
		bad = append(bad, fmt.Errorf("amount must be 1 to %d minor units", maxAmount))
	}
	if !phoneNumber.MatchString(n.Phone) {
		bad = append(bad, errors.New("phone must be a number in E.164 form, such as +15005550006"))
	}
	if _, ok := event.Exponent(n.Currency); !ok {
		bad = append(bad, errors.New("currency must be an ISO 4217 code in capitals, of a currency with a minor unit"))
	}
	if length := utf8.RuneCountInString(n.Title); length < 1 || length > maxTitle {
		bad = append(bad, fmt.Errorf("title must have 1 to %d characters", maxTitle))
	}
	return errors.Join(append(bad, checkText("user_id", n.UserID, true))...)
}

// createOrder makes one order per idempotency key. A repetition with the same body gets the order as it was made, so
// that the same request has the same answer whatever has become of the order since.
func (s *server) createOrder(ctx context.Context, key, bodyHash string, n newOrder) (order, error) {
	var o order
	isNew := false
	err := postgres.Transaction(ctx, s.db, func(tx *gorm.DB) error {
		no, err := uuid.NewV7() // sorts by time, and 74 random bits keep others from guessing it
		if err != nil {
			return err
		}
		o = order{
			OrderNo: no.String(), UserID: n.UserID, Phone: n.Phone, Title: n.Title, Amount: int64(*n.Amount),
			Currency: n.Currency, Status: event.StatusCreated, Version: 1,
		}
		// The key goes first: its insert waits for a twin in flight and then tells us that it was there.
		taken := idempotencyKey{Key: key, RequestHash: bodyHash, OrderNo: o.OrderNo}
		insert := tx.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "key"}}, DoNothing: true}).Create(&taken)
		if insert.Error != nil {
			return insert.Error
		}
		if isNew = insert.RowsAffected == 1; !isNew {
			return firstAnswer(tx, key, bodyHash, &o)
		}
		if err := tx.Create(&o).Error; err != nil {
			return err
		}
		return appendEvent(ctx, tx, o, event.OrderCreated, "", key, "")
	})
	if err == nil && isNew {
		s.wake()
		s.log.InfoContext(ctx, "order created", "order_no", o.OrderNo)
	}
	return o, err
}

// firstAnswer loads the order that the key made and turns it back into what it was then; the rest of it never changes.
func firstAnswer(tx *gorm.DB, key, bodyHash string, o *order) error {
	var first idempotencyKey
	if err := tx.Take(&first, "key = ?", key).Error; err != nil {
		return err
	}
	if first.RequestHash != bodyHash {
		return &problem{http.StatusUnprocessableEntity, "idempotency-key-reused", "this Idempotency-Key came before with another body; take a new key for a new order"}
	}
	*o = order{}
	if err := tx.Take(o, "order_no = ?", first.OrderNo).Error; err != nil {
		return err
	}
	o.Status, o.Version, o.PaidAt = event.StatusCreated, 1, nil
	return nil
}

// cancelOrder is the customer's last word. An order that was paid leaves an incident, because its money must go back.
// Cancelling again changes nothing and gives the same answer.
func (s *server) cancelOrder(ctx context.Context, orderNo string) (orderView, error) {
	var view orderView
	var due *incident
	changed := false
	err := postgres.Transaction(ctx, s.db, func(tx *gorm.DB) error {
		due, changed = nil, false
		o, paid, err := lockOrder(tx, orderNo)
		switch {
		case err != nil:
			return err
		case o == nil:
			return errNoOrder
		case o.Status == event.StatusClosed:
			return &problem{http.StatusConflict, "order-closed", "the order was closed unpaid; there is nothing to cancel"}
		case o.Status == event.StatusCanceled:
			view, err = viewOf(tx, *o)
			return err
		}
		previous, tradeNo := o.Status, ""
		if err := advance(tx, o, event.StatusCanceled, nil); err != nil {
			return err
		}
		if paid != nil {
			tradeNo = paid.TradeNo
			refund := incident{
				Kind: incidentRefundDue, OrderNo: orderNo, TradeNo: tradeNo,
				Expected: money(0, paid.Currency), Received: money(paid.Amount, paid.Currency),
			}
			if due, err = refund.record(tx); err != nil {
				return err
			}
		}
		// An order is cancelled once, so that the step itself is cause enough for the event's id.
		if err := appendEvent(ctx, tx, *o, event.OrderCanceled, previous, "cancel", tradeNo); err != nil {
			return err
		}
		changed = true
		view, err = viewOf(tx, *o)
		return err
	})
	if err == nil && changed {
		s.wake()
		s.log.InfoContext(ctx, "order cancelled", "order_no", orderNo)
	}
	if err == nil && due != nil {
		s.metrics.incident(due.Kind)
	}
	return view, err
}

var errNoOrder = &problem{http.StatusNotFound, "no-such-order", "there is no such order"}

// orderView is an order as the API shows it. The phone is not part of it.
type orderView struct {
	OrderNo   string       `json:"order_no"`
	UserID    string       `json:"user_id"`
	Title     string       `json:"title"`
	Amount    int64        `json:"amount"`
	Currency  string       `json:"currency"`
	Status    string       `json:"status"`
	Version   int64        `json:"version"`
	CreatedAt time.Time    `json:"created_at"`
	PaidAt    *time.Time   `json:"paid_at"`
	Payment   *paymentView `json:"payment"`
	Incidents []incident   `json:"incidents"`
}

type paymentView struct {
	TradeNo  string    `json:"trade_no"`
	Amount   int64     `json:"amount"`
	Currency string    `json:"currency"`
	PaidAt   time.Time `json:"paid_at"`
}

func (o order) view() orderView {
	return orderView{
		OrderNo: o.OrderNo, UserID: o.UserID, Title: o.Title, Amount: o.Amount, Currency: o.Currency, Status: o.Status,
		Version: o.Version, CreatedAt: o.CreatedAt.UTC(), PaidAt: utc(o.PaidAt), Incidents: []incident{},
	}
}

// viewOf adds payment and incidents as tx sees them.
func viewOf(tx *gorm.DB, o order) (orderView, error) {
	view := o.view()
	paid, err := paymentOf(tx, o.OrderNo)
	if err != nil {
		return view, err
	}
	if paid != nil {
		view.Payment = &paymentView{paid.TradeNo, paid.Amount, paid.Currency, paid.PaidAt.UTC()}
	}
	if err := tx.Order("id").Find(&view.Incidents, "order_no = ?", o.OrderNo).Error; err != nil {
		return view, err
	}
	for i := range view.Incidents {
		view.Incidents[i].CreatedAt = view.Incidents[i].CreatedAt.UTC()
	}
	return view, nil
}

// getOrder reads all parts at one moment, so that an order is never shown paid without its payment.
func (s *server) getOrder(ctx context.Context, orderNo string) (view orderView, err error) {
	err = snapshot(ctx, s.db, func(tx *gorm.DB) error {
		var o order
		err := tx.Take(&o, "order_no = ?", orderNo).Error
		if errors.Is(err, gorm.ErrRecordNotFound) {
			return errNoOrder
		}
		if err == nil {
			view, err = viewOf(tx, o)
		}
		return err
	})
	return view, err
}
