package facts

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// Contents is an order as its owner shows it, and what a whole copy of one holds. A copy whose type has the same fields
// converts to it, and no longer compiles when one is forgotten.
type Contents struct {
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

// Digest is equal for equal contents, whatever zone their times are in. It is empty when a time is none that JSON can hold.
// Services keep digests: with a field more, or in another order, all of their copies look damaged until they are made anew.
func (c Contents) Digest() string {
	c.CreatedAt = c.CreatedAt.UTC()
	if c.PaidAt != nil {
		at := c.PaidAt.UTC()
		c.PaidAt = &at
	}
	text, err := json.Marshal(c)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
