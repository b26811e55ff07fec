package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"example.com/paycast/deploy/world/provider"
)

// run is what the orders of one Run share. Its id keeps two runs against one system apart.
type run struct {
	Config
	id     string
	client *http.Client
}

// one makes and pays the n-th order, counted from 0.
func (r *run) one(ctx context.Context, n int) Entry {
	e := Entry{
		Key: fmt.Sprintf("load-%s-%d", r.id, n), UserID: fmt.Sprintf("user-%d", n%100),
		Amount: int64(100 + n%10_000), Currency: "EUR", Copies: 1,
	}
	if (n+1)*r.DuplicatePercent/100 != n*r.DuplicatePercent/100 { // spread evenly, without chance
		e.Copies = duplicateCopies
	}
	e.OrderNo, e.Created = r.create(ctx, n, e)
	if e.Created != Success {
		return e // an unknown order has no number to pay for
	}
	report, err := r.Provider.Pay(ctx, provider.Payment{
		OrderNo: e.OrderNo, Amount: e.Amount, Currency: e.Currency, Copies: e.Copies, Parallel: e.Copies,
	})
	e.TradeNo, e.Paid = report.TradeNo, verdict(report)
	if err != nil && e.Paid == Fail {
		e.Paid = Unknown // cut off in the middle
	}
	return e
}

func (r *run) create(ctx context.Context, n int, e Entry) (orderNo string, v Verdict) {
	body, err := json.Marshal(map[string]any{
		"user_id": e.UserID, "phone": fmt.Sprintf("+1555%07d", n), "title": "load " + e.Key, "amount": e.Amount, "currency": e.Currency,
	})
	if err != nil {
		return "", Fail
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(r.PaymentURL, "/")+"/orders", bytes.NewReader(body))
	if err != nil {
		return "", Fail
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", e.Key)
	resp, err := r.client.Do(req)
	if err != nil {
		return "", Unknown
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	switch {
	case err != nil || resp.StatusCode >= 500:
		return "", Unknown
	case resp.StatusCode != http.StatusCreated:
		return "", Fail
	}
	var order struct {
		OrderNo string `json:"order_no"`
	}
	if err := json.Unmarshal(answer, &order); err != nil || order.OrderNo == "" {
		return "", Unknown
	}
	return order.OrderNo, Success
}

// verdict is what the provider knows at the end: one 200 is a promise that the payment is kept. Without one, an
// attempt that was not answered, or answered with a server's error, may have been carried out.
func verdict(report provider.Report) Verdict {
	v := Fail
	for _, a := range report.Attempts {
		switch {
		case a.Status == http.StatusOK:
			return Success
		case a.Status == 0 || a.Status >= 500:
			v = Unknown
		}
	}
	return v
}
