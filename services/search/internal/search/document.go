package search

import (
	"time"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/facts"
)

// document is what the index holds of an order, and what GET /orders shows of it. Its version is also the document's
// version in Elasticsearch.
type document struct {
	OrderNo   string     `json:"order_no"`
	UserID    string     `json:"user_id"`
	Title     string     `json:"title"`
	Amount    int64      `json:"amount"`
	Currency  string     `json:"currency"`
	Status    string     `json:"status"`
	Version   int64      `json:"version"`
	CreatedAt time.Time  `json:"created_at"`
	PaidAt    *time.Time `json:"paid_at"`
}

func documentOf(o event.Order) document {
	return document{
		OrderNo: o.OrderNo, UserID: o.UserID, Title: o.Title, Amount: o.Amount, Currency: o.Currency,
		Status: o.Status, Version: o.Version, CreatedAt: o.CreatedAt, PaidAt: o.PaidAt,
	}
}

// digest tells us whether what the index holds is what was written, and the reconciler whether it is the order.
func (d document) digest() string { return facts.Contents(d).Digest() }
