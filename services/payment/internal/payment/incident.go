package payment

import (
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// The kinds of incident. In refund_due, paid_after_close and second_payment there is money to give back.
const (
	incidentUnknownOrder    = "unknown_order"
	incidentWrongMerchant   = "wrong_merchant"
	incidentWrongAmount     = "wrong_amount"
	incidentWrongCurrency   = "wrong_currency"
	incidentTradeOfOther    = "trade_of_other_order"
	incidentSecondPayment   = "second_payment"
	incidentPaidAfterClose  = "paid_after_close"
	incidentClosedAfterPaid = "closed_after_paid"
	incidentRefundDue       = "refund_due"
)

func incidentKinds() []string {
	return []string{
		incidentUnknownOrder, incidentWrongMerchant, incidentWrongAmount, incidentWrongCurrency, incidentTradeOfOther,
		incidentSecondPayment, incidentPaidAfterClose, incidentClosedAfterPaid, incidentRefundDue,
	}
}

// The states of an incident. Only a person takes it from one to the other; see resolve.
const (
	incidentOpen     = "OPEN"
	incidentResolved = "RESOLVED"
)

// incident is a row for a person: something was said or done about an order that the program must not settle alone.
type incident struct {
	ID        int64     `gorm:"primaryKey" json:"id"`
	Kind      string    `json:"kind"`
	OrderNo   string    `json:"-"`
	TradeNo   string    `json:"trade_no"`
	Expected  string    `json:"expected"`
	Received  string    `json:"received"`
	State     string    `gorm:"default:OPEN" json:"state"`
	CreatedAt time.Time `gorm:"autoCreateTime:false;default:clock_timestamp()" json:"created_at"`

	ResolvedAt *time.Time `json:"-"`
}

func (incident) TableName() string { return "t_incident" }

// record keeps i in the caller's transaction, together with whatever it is about. It returns nil when the same incident
// is there already: the provider may report it again under another webhook id.
func (i *incident) record(tx *gorm.DB) (added *incident, err error) {
	insert := tx.Clauses(clause.OnConflict{
		Columns:   []clause.Column{{Name: "order_no"}, {Name: "kind"}, {Name: "trade_no"}, {Name: "received"}},
		DoNothing: true,
	}).Create(i)
	if insert.Error != nil || insert.RowsAffected == 0 {
		return nil, insert.Error
	}
	return i, nil
}
