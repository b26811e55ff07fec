package ask

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"example.com/paycast/shared/ops"
)

// Account is a user's points.
type Account struct {
	Balance int64 `json:"balance"`
	Entries []struct {
		EventID string `json:"event_id"`
		OrderNo string `json:"order_no"`
		Kind    string `json:"kind"`
		Points  int64  `json:"points"`
	} `json:"entries"`
}

// Account reads it from points.
func (a *Asker) Account(ctx context.Context, user string) (acc Account, err error) {
	err = a.api("POINTS").GetJSON(ctx, "/accounts/"+user, nil, &acc)
	return acc, err
}

// Notice is a notification command.
type Notice struct {
	CommandID string `json:"command_id"`
	EventID   string `json:"event_id"`
	Kind      string `json:"kind"`
	Status    string `json:"status"`
	Attempts  int    `json:"attempts"`
}

// Notices reads the commands of one order from notify.
func (a *Asker) Notices(ctx context.Context, orderNo string) ([]Notice, error) {
	var page struct {
		Notifications []Notice `json:"notifications"`
	}
	err := a.api("NOTIFY").GetJSON(ctx, "/notifications", url.Values{"order_no": {orderNo}}, &page)
	return page.Notifications, err
}

// Message is an SMS that the provider has accepted.
type Message struct {
	Key      string `json:"key"`
	To       string `json:"to"`
	Text     string `json:"text"`
	Attempts int    `json:"attempts"`
}

// Messages are all that the provider has accepted, by number.
func (a *Asker) Messages(ctx context.Context) (map[string][]Message, error) {
	var page struct {
		Messages []Message `json:"messages"`
	}
	if err := a.api("SMS").GetJSON(ctx, "/messages", nil, &page); err != nil {
		return nil, err
	}
	byNumber := map[string][]Message{}
	for _, m := range page.Messages {
		byNumber[m.To] = append(byNumber[m.To], m)
	}
	return byNumber, nil
}

// index is the alias under which the search service keeps its documents.
const index = "orders"

// Document is what Elasticsearch itself holds under an order's number.
type Document struct {
	Version int64 `json:"_version"` // 0 when there is none
	Source  struct {
		Status string `json:"status"`
	} `json:"_source"`
}

// Document asks Elasticsearch and not the search service.
func (a *Asker) Document(ctx context.Context, orderNo string) (d Document, err error) {
	err = ops.Client{BaseURL: a.vars["ELASTICSEARCH_URL"]}.GetJSON(ctx, "/"+index+"/_doc/"+orderNo, nil, &d)
	var answer *ops.StatusError
	if errors.As(err, &answer) && answer.Status == http.StatusNotFound {
		err = nil // not there yet
	}
	return d, err
}

// Found is how many orders the search service finds with a status.
func (a *Asker) Found(ctx context.Context, status string) (total int64, err error) {
	var page struct {
		Total int64 `json:"total"`
	}
	err = a.api("SEARCH").GetJSON(ctx, "/orders", url.Values{"status": {status}, "limit": {"1"}}, &page)
	return page.Total, err
}
