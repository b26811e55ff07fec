package ask

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/paycast/shared/event"
)

// Customer is who orders what.
type Customer struct {
	User, Phone, Title string
	Amount             int64 // minor units
	Currency           string
}

// Order is an order as payment shows it.
type Order struct {
	OrderNo string `json:"order_no"`
	Status  string `json:"status"`
	Version int64  `json:"version"`
	Payment *struct {
		TradeNo string `json:"trade_no"`
	} `json:"payment"`
	Incidents []struct {
		ID       int64  `json:"id"`
		Kind     string `json:"kind"`
		Expected string `json:"expected"`
		Received string `json:"received"`
		State    string `json:"state"`
	} `json:"incidents"`
}

// CreateOrder orders for a customer.
func (a *Asker) CreateOrder(ctx context.Context, key string, c Customer) (o Order, err error) {
	body, err := json.Marshal(map[string]any{
		"user_id": c.User, "phone": c.Phone, "title": c.Title, "amount": c.Amount, "currency": c.Currency,
	})
	if err != nil {
		return o, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.vars["PAYMENT_URL"]+"/orders", bytes.NewReader(body))
	if err != nil {
		return o, err
	}
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return o, fmt.Errorf("payment: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusCreated {
		err = fmt.Errorf("payment: POST /orders answered %s: %s", resp.Status, answer)
	}
	if err == nil {
		err = json.Unmarshal(answer, &o)
	}
	return o, err
}

// Order reads one order.
func (a *Asker) Order(ctx context.Context, no string) (o Order, err error) {
	err = a.api("PAYMENT").GetJSON(ctx, "/orders/"+no, nil, &o)
	return o, err
}

// Callbacks says how the payment provider reports a payment.
type Callbacks struct {
	OrderNo  string `json:"order_no"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Copies   int    `json:"copies"`
	Parallel int    `json:"parallel"`
	Mode     string `json:"mode"`
}

// Report is what came of it.
type Report struct {
	TradeNo  string `json:"trade_no"`
	Accepted int    `json:"accepted"`
	Attempts []struct {
		WebhookID string `json:"webhook_id"`
		Status    int    `json:"status"`
		Answer    string `json:"answer"`
	} `json:"attempts"`
}

// Answers counts the different answers, and ids the different webhook ids.
func (r Report) Answers() (answers, ids int) {
	seen, names := map[string]bool{}, map[string]bool{}
	for _, a := range r.Attempts {
		seen[a.Answer], names[a.WebhookID] = true, true
	}
	return len(seen), len(names)
}

// Pay lets the provider report a payment, and returns when it has its answers.
func (a *Asker) Pay(ctx context.Context, c Callbacks) (r Report, err error) {
	if err := a.api("WORLD").PostJSON(ctx, "/pay", c, &r); err != nil {
		return r, fmt.Errorf("world: POST /pay: %w", err)
	}
	if len(r.Attempts) == 0 {
		return r, errors.New("world: the provider sent nothing")
	}
	return r, nil
}

// Row is an outbox row.
type Row struct {
	EventID   string
	Status    string
	Version   int64
	Partition *int32 // where the broker said that it is; nil until then
	Offset    *int64
	Takeovers int
	Delay     time.Duration // from append to sent
}

const sqlRows = `
SELECT event_id, status, aggregate_version, broker_partition, broker_offset, takeover_count,
       (extract(epoch FROM coalesce(sent_at, created_at) - created_at) * 1e9)::bigint
  FROM t_outbox_event
 WHERE aggregate_id = $1 AND event_type = $2`

// Paid reads the outbox rows that say that an order is paid. There should be one at most.
func (a *Asker) Paid(ctx context.Context, orderNo string) ([]Row, error) {
	rows, err := a.payment.Query(ctx, sqlRows, orderNo, event.PaymentSucceeded)
	if err != nil {
		return nil, fmt.Errorf("reading the outbox: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Row])
}
