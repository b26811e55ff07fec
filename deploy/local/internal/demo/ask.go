package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/ops"
)

// asker reads back from each part what it holds, and from no other.
type asker struct {
	vars    map[string]string
	payment *pgx.Conn // the payment service's database, as its owner
}

func newAsker(ctx context.Context, vars map[string]string) (*asker, error) {
	conn, err := pgx.Connect(ctx, vars["PAYMENT_DATABASE_URL"])
	if err != nil {
		return nil, fmt.Errorf("opening payment's database: %w", err)
	}
	return &asker{vars: vars, payment: conn}, nil
}

func (a *asker) close(ctx context.Context) { _ = a.payment.Close(ctx) }

func (a *asker) api(name string) ops.Client {
	return ops.Client{BaseURL: a.vars[name+"_URL"], Token: a.vars["OPS_TOKEN"]}
}

type order struct {
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

func (a *asker) createOrder(ctx context.Context, key string, c customer) (o order, err error) {
	body, err := json.Marshal(map[string]any{
		"user_id": c.user, "phone": c.phone, "title": c.title, "amount": c.amount, "currency": c.currency,
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
		return o, err
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

func (a *asker) order(ctx context.Context, no string) (o order, err error) {
	err = a.api("PAYMENT").GetJSON(ctx, "/orders/"+no, nil, &o)
	return o, err
}

// callbacks is how the payment provider is told to report a payment, and what came of it.
type callbacks struct {
	OrderNo  string `json:"order_no"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Copies   int    `json:"copies"`
	Parallel int    `json:"parallel"`
	Mode     string `json:"mode"`
}

type report struct {
	TradeNo  string `json:"trade_no"`
	Accepted int    `json:"accepted"`
	Attempts []struct {
		WebhookID  string  `json:"webhook_id"`
		Status     int     `json:"status"`
		Answer     string  `json:"answer"`
		DurationMS float64 `json:"duration_ms"`
	} `json:"attempts"`
}

// different counts the distinct values that of gives over all attempts.
func (r report) different(of func(i int) any) int {
	seen := map[any]bool{}
	for i := range r.Attempts {
		seen[of(i)] = true
	}
	return len(seen)
}

func (a *asker) pay(ctx context.Context, c callbacks) (r report, err error) {
	if err := a.api("WORLD").PostJSON(ctx, "/pay", c, &r); err != nil {
		return r, fmt.Errorf("world: POST /pay: %w", err)
	}
	if len(r.Attempts) == 0 {
		return r, errors.New("world: the provider sent nothing")
	}
	return r, nil
}

// row is an outbox row.
type row struct {
	EventID   string
	Status    string
	Version   int64
	Partition *int32
	Offset    *int64
	Takeovers int
	Delay     time.Duration // from append to sent
}

// outboxRows reads all rows of one order and type.
func (a *asker) outboxRows(ctx context.Context, orderNo, eventType string) ([]row, error) {
	rows, err := a.payment.Query(ctx, `
		SELECT event_id, status, aggregate_version, broker_partition, broker_offset, takeover_count,
		       (extract(epoch FROM coalesce(sent_at, created_at) - created_at) * 1e9)::bigint
		FROM t_outbox_event WHERE aggregate_id = $1 AND event_type = $2`, orderNo, eventType)
	if err != nil {
		return nil, fmt.Errorf("reading the outbox: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[row])
}

// record reads one record from where the broker said that it stored it.
func (a *asker) record(ctx context.Context, partition int32, offset int64) (*kgo.Record, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(a.vars["KAFKA_BROKERS"]), kgo.ConsumePartitions(
		map[string]map[int32]kgo.Offset{event.Topic: {partition: kgo.NewOffset().At(offset)}}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	fetches := client.PollRecords(ctx, 1)
	if err := fetches.Err(); err != nil {
		return nil, fmt.Errorf("kafka: reading %s[%d]@%d: %w", event.Topic, partition, offset, err)
	}
	return fetches.Records()[0], nil
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// copies counts the records of one key by event id, from the partition's beginning up to its present end.
func (a *asker) copies(ctx context.Context, partition int32, key string) (map[string]int, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(a.vars["KAFKA_BROKERS"]), kgo.ConsumePartitions(
		map[string]map[int32]kgo.Offset{event.Topic: {partition: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := map[string]int{}
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("kafka: reading %s[%d]: %w", event.Topic, partition, err)
		}
		last := int64(-1)
		var end int64
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			end = p.HighWatermark
			for _, r := range p.Records {
				last = r.Offset
				if string(r.Key) == key {
					found[header(r, "ce_id")]++
				}
			}
		})
		if last+1 >= end {
			return found, nil
		}
	}
}

type account struct {
	Balance int64 `json:"balance"`
	Entries []struct {
		EventID string `json:"event_id"`
		OrderNo string `json:"order_no"`
		Kind    string `json:"kind"`
		Points  int64  `json:"points"`
	} `json:"entries"`
}

func (a *asker) account(ctx context.Context, user string) (acc account, err error) {
	err = a.api("POINTS").GetJSON(ctx, "/accounts/"+user, nil, &acc)
	return acc, err
}

type notice struct {
	CommandID string `json:"command_id"`
	EventID   string `json:"event_id"`
	Kind      string `json:"kind"`
	Status    string `json:"status"`
	Attempts  int    `json:"attempts"`
	MessageID string `json:"provider_message_id"`
}

func (a *asker) notices(ctx context.Context, orderNo string) ([]notice, error) {
	var page struct {
		Notifications []notice `json:"notifications"`
	}
	err := a.api("NOTIFY").GetJSON(ctx, "/notifications", url.Values{"order_no": {orderNo}}, &page)
	return page.Notifications, err
}

type message struct {
	Key      string `json:"key"`
	To       string `json:"to"`
	Text     string `json:"text"`
	Attempts int    `json:"attempts"`
}

// messages are what the SMS provider has accepted for one number.
func (a *asker) messages(ctx context.Context, to string) ([]message, error) {
	var page struct {
		Messages []message `json:"messages"`
	}
	if err := a.api("SMS").GetJSON(ctx, "/messages", nil, &page); err != nil {
		return nil, err
	}
	var found []message
	for _, m := range page.Messages {
		if m.To == to {
			found = append(found, m)
		}
	}
	return found, nil
}

// document is what Elasticsearch itself holds under the order's number.
type document struct {
	Version int64 `json:"_version"`
	Found   bool  `json:"found"`
	Source  struct {
		Status  string `json:"status"`
		Version int64  `json:"version"`
	} `json:"_source"`
}

func (a *asker) document(ctx context.Context, orderNo string) (d document, err error) {
	err = ops.Client{BaseURL: a.vars["ELASTICSEARCH_URL"]}.GetJSON(ctx, "/"+index+"/_doc/"+orderNo, nil, &d)
	var answer *ops.StatusError
	if errors.As(err, &answer) && answer.Status == http.StatusNotFound {
		err = nil // not there yet
	}
	return d, err
}

type run struct {
	ID       string         `json:"id"`
	Status   string         `json:"status"`
	Checked  map[string]any `json:"checked"`
	Findings []struct {
		Kind    string `json:"kind"`
		Group   string `json:"group"`
		OrderNo string `json:"order_no"`
		Detail  string `json:"detail"`
	} `json:"findings"`
}

func (a *asker) startRun(ctx context.Context) (r run, err error) {
	err = a.api("RECONCILE").PostJSON(ctx, "/runs", nil, &r)
	return r, err
}

func (a *asker) run(ctx context.Context, id string) (r run, err error) {
	err = a.api("RECONCILE").GetJSON(ctx, "/runs/"+id, nil, &r)
	return r, err
}
