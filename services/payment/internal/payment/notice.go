package payment

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// The provider's words for what happened.
const (
	noticeSucceeded = "payment.succeeded"
	noticeFailed    = "payment.failed"
	noticeClosed    = "payment.closed"
)

// notice is one callback, authentic and understood, before it is held against its order.
type notice struct {
	WebhookID string
	BodyHash  string
	Type      string

	// The rest is empty for a type that we do not know. With payment.succeeded all of it is there; with the others
	// Currency is "" when the provider named no amount, and there is no PaidAt.
	MerchantID string
	TradeNo    string
	OrderNo    string
	Amount     int64
	Currency   string
	PaidAt     time.Time
}

func (n notice) known() bool {
	return n.Type == noticeSucceeded || n.Type == noticeFailed || n.Type == noticeClosed
}

// decodeNotice reads a callback's body. Whatever it cannot understand is an error: such a callback is answered 400, so
// that the provider shows it to somebody, and is not taken for one that we looked at.
func decodeNotice(webhookID string, body []byte) (notice, error) {
	var envelope struct {
		Type string          `json:"type"`
		Data json.RawMessage `json:"data"`
	}
	if err := decodeJSON(body, &envelope); err != nil {
		return notice{}, err
	}
	n := notice{WebhookID: webhookID, BodyHash: hashOf(body), Type: envelope.Type}
	if err := checkText("type", n.Type, true); err != nil {
		return notice{}, err
	}
	if !n.known() {
		return n, nil
	}
	var data struct {
		MerchantID string `json:"merchant_id"`
		TradeNo    string `json:"trade_no"`
		OrderNo    string `json:"order_no"`
		Amount     *minor `json:"amount"`
		Currency   string `json:"currency"`
		PaidAt     string `json:"paid_at"`
	}
	if err := decodeJSON(envelope.Data, &data); err != nil {
		return notice{}, fmt.Errorf("data: %w", err)
	}
	succeeded := n.Type == noticeSucceeded
	bad := []error{
		checkText("data.merchant_id", data.MerchantID, true),
		checkText("data.order_no", data.OrderNo, true),
		checkText("data.trade_no", data.TradeNo, succeeded),
		checkText("data.currency", data.Currency, succeeded),
	}
	if data.Amount != nil {
		n.Amount = int64(*data.Amount)
	} else if succeeded || data.Currency != "" {
		bad = append(bad, errors.New("data.amount is missing"))
	}
	if succeeded {
		paidAt, err := time.Parse(time.RFC3339, data.PaidAt)
		if err != nil || paidAt.Year() < 2000 || paidAt.Year() > 2200 {
			bad = append(bad, errors.New("data.paid_at is missing or not a time of this age in RFC 3339 form"))
		}
		// Postgres keeps microseconds: what is written and what is read back must be the same.
		n.PaidAt = paidAt.UTC().Truncate(time.Microsecond)
	}
	if err := errors.Join(bad...); err != nil {
		return notice{}, err
	}
	n.MerchantID, n.TradeNo, n.OrderNo, n.Currency = data.MerchantID, data.TradeNo, data.OrderNo, data.Currency
	return n, nil
}

// maxWord bounds identifiers that others choose, in bytes. The event contract has the same bound for the ones that
// become headers.
const maxWord = 128

func checkText(field, value string, required bool) error {
	switch {
	case value == "" && required:
		return fmt.Errorf("%s is missing", field)
	case len(value) > maxWord:
		return fmt.Errorf("%s is longer than %d bytes", field, maxWord)
	}
	return nil
}
