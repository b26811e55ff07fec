package payment

import (
	"context"
	"embed"
	"encoding/json"
	"time"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/telemetry"
)

//go:embed migrations/*.sql
var files embed.FS

// Times that the database sets are left to it: its clock is the only one that all replicas share.

type order struct {
	OrderNo   string `gorm:"primaryKey"`
	UserID    string
	Phone     string
	Title     string
	Amount    int64
	Currency  string
	Status    string
	Version   int64
	CreatedAt time.Time `gorm:"autoCreateTime:false;default:clock_timestamp()"`
	UpdatedAt time.Time `gorm:"autoUpdateTime:false;default:clock_timestamp()"`
	PaidAt    *time.Time
}

func (order) TableName() string { return "t_order" }

type payment struct {
	TradeNo   string `gorm:"primaryKey"`
	OrderNo   string
	Amount    int64
	Currency  string
	PaidAt    time.Time
	CreatedAt time.Time `gorm:"autoCreateTime:false;default:clock_timestamp()"`
}

func (payment) TableName() string { return "t_payment" }

type receipt struct {
	WebhookID  string `gorm:"primaryKey"`
	BodyHash   string
	EventType  string
	OrderNo    string
	Verdict    verdict
	Answer     string
	ReceivedAt time.Time `gorm:"default:clock_timestamp()"`
}

func (receipt) TableName() string { return "t_callback_receipt" }

type idempotencyKey struct {
	Key         string `gorm:"primaryKey"`
	RequestHash string
	OrderNo     string
	CreatedAt   time.Time `gorm:"autoCreateTime:false;default:clock_timestamp()"`
}

func (idempotencyKey) TableName() string { return "t_idempotency_key" }

// source is this producer in the events' ce_source.
const source = "/paycast/payment"

// event tells of the step that led to the order as it is now. cause is what makes the step one of a kind; see
// event.NewID. The payload is encoded here, once, and never again.
func (o order) event(ctx context.Context, eventType, previous, cause, tradeNo string) (event.Event, error) {
	e := event.Event{
		ID: event.NewID(eventType, o.OrderNo, cause), Type: eventType, Version: event.CurrentVersion, Source: source,
		AggregateType: event.AggregateOrder, AggregateID: o.OrderNo, AggregateVersion: o.Version,
		Time: o.UpdatedAt.UTC(), TraceParent: telemetry.TraceParent(ctx),
	}
	fact := event.Order{
		OrderNo: o.OrderNo, UserID: o.UserID, Title: o.Title, Amount: o.Amount, Currency: o.Currency,
		Status: o.Status, Version: o.Version, PreviousStatus: previous,
		CreatedAt: o.CreatedAt.UTC(), OccurredAt: o.UpdatedAt.UTC(), TradeNo: tradeNo, PaidAt: utc(o.PaidAt),
	}
	var err error
	e.Payload, err = json.Marshal(fact)
	return e, err
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
