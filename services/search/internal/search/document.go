package search

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"example.com/paycast/shared/event"
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
	}.utc()
}

// utc makes equal moments equal bytes, which the digest needs.
func (d document) utc() document {
	d.CreatedAt = d.CreatedAt.UTC()
	if d.PaidAt != nil {
		at := d.PaidAt.UTC()
		d.PaidAt = &at
	}
	return d
}

// digest tells whether what the index holds is what was written.
func (d document) digest() (string, error) {
	text, err := json.Marshal(d.utc())
	if err != nil {
		return "", fmt.Errorf("making a document's digest: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
