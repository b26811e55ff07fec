package provider

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Mode is what the provider does wrong.
type Mode string

// The modes.
const (
	OK           Mode = "ok"
	BadSignature Mode = "bad_signature" // signed with a secret that is not ours
	WrongAmount  Mode = "wrong_amount"  // one minor unit more than was asked for
	Stale        Mode = "stale"         // timestamp ten minutes old
	Future       Mode = "future"        // timestamp ten minutes ahead
	NewIDs       Mode = "new_ids"       // each copy has a webhook id of its own
	HangUp       Mode = "hang_up"       // the first attempt of each copy closes the connection before it reads the answer
)

var modes = []Mode{OK, BadSignature, WrongAmount, Stale, Future, NewIDs, HangUp}

// The callback types.
const (
	Succeeded = "payment.succeeded"
	Failed    = "payment.failed"
	Closed    = "payment.closed"
)

// Payment says what the customer paid and how the provider reports it. Zero values mean: a new trade, payment.succeeded,
// one copy, one at a time, no delay, mode ok, five attempts.
type Payment struct {
	OrderNo  string `json:"order_no"`
	TradeNo  string `json:"trade_no"`
	Type     string `json:"type"`
	Amount   int64  `json:"amount"` // minor units
	Currency string `json:"currency"`
	Copies   int    `json:"copies"`   // how often the callback is sent
	Parallel int    `json:"parallel"` // how many copies at once
	DelayMS  int    `json:"delay_ms"` // before the first attempt of each copy
	Attempts int    `json:"attempts"` // per copy; modes that can only be refused default to one
	Mode     Mode   `json:"mode"`
}

// Bounds that keep a report readable and a mistake harmless.
const (
	maxCopies, maxParallel, maxDelayMS, maxAttempts = 1000, 100, 60_000, 20
	defaultAttempts                                 = 5
)

func (p Payment) withDefaults() Payment {
	if p.TradeNo == "" {
		p.TradeNo = "T" + rand.Text()
	}
	if p.Type == "" {
		p.Type = Succeeded
	}
	if p.Mode == "" {
		p.Mode = OK
	}
	if p.Attempts == 0 {
		p.Attempts = defaultAttempts
		if slices.Contains([]Mode{BadSignature, Stale, Future}, p.Mode) {
			p.Attempts = 1
		}
	}
	p.Copies, p.Parallel = max(p.Copies, 1), max(p.Parallel, 1)
	return p
}

func (p Payment) validate() error {
	switch {
	case p.OrderNo == "" || p.Currency == "" || p.Amount <= 0:
		return fmt.Errorf("order_no, currency and a positive amount are needed")
	case !slices.Contains(modes, p.Mode):
		return fmt.Errorf("mode must be one of %v", modes)
	case p.Copies > maxCopies || p.Parallel > maxParallel:
		return fmt.Errorf("at most %d copies and %d at once", maxCopies, maxParallel)
	case p.DelayMS < 0 || p.DelayMS > maxDelayMS:
		return fmt.Errorf("delay_ms must be from 0 to %d", maxDelayMS)
	case p.Attempts < 1 || p.Attempts > maxAttempts:
		return fmt.Errorf("attempts must be from 1 to %d", maxAttempts)
	}
	return nil
}

// callback is a report as it goes over the wire: its bytes and the id that they keep over all attempts.
type callback struct {
	id   string
	body []byte
}

// newCallback writes the body once; paidAt is the provider's, so a trade that is reported again later keeps its time.
// The webhook id follows from the bytes: the same callback has the same id, another one has another.
func newCallback(p Payment, merchantID string, paidAt time.Time) (callback, error) {
	if p.Mode == WrongAmount {
		p.Amount++
	}
	var b struct {
		Type      string    `json:"type"`
		Timestamp time.Time `json:"timestamp"`
		Data      struct {
			MerchantID string    `json:"merchant_id"`
			TradeNo    string    `json:"trade_no"`
			OrderNo    string    `json:"order_no"`
			Amount     int64     `json:"amount"`
			Currency   string    `json:"currency"`
			PaidAt     time.Time `json:"paid_at"`
		} `json:"data"`
	}
	b.Type, b.Timestamp = p.Type, paidAt
	b.Data.MerchantID, b.Data.TradeNo, b.Data.OrderNo = merchantID, p.TradeNo, p.OrderNo
	b.Data.Amount, b.Data.Currency, b.Data.PaidAt = p.Amount, p.Currency, paidAt
	body, err := json.Marshal(b)
	if err != nil {
		return callback{}, err
	}
	sum := sha256.Sum256(body)
	return callback{id: "msg_" + hex.EncodeToString(sum[:12]), body: body}, nil
}

// copyOf is the n-th copy (from 0) as it is sent.
func (c callback) copyOf(n int, mode Mode) callback {
	if mode == NewIDs && n > 0 {
		c.id = fmt.Sprintf("%s_%d", c.id, n+1)
	}
	return c
}
