package notify

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"gorm.io/gorm"

	"example.com/paycast/shared/facts"
	"example.com/paycast/shared/ops"
)

// listed is what operators see of a command; neither text nor phone.
type listed struct {
	notification
	Takeovers     int        `json:"takeovers"`
	LastErrorCode *string    `json:"last_error_code"`
	NextAttemptAt *time.Time `json:"next_attempt_at"`
}

const (
	defaultList = 100
	maxList     = 1000
)

// pace is how fast this process may send.
type pace struct {
	Rate   float64 `json:"rate"` // per second, over all senders
	Burst  int     `json:"burst"`
	Paused bool    `json:"paused"`
}

// listCommands is GET /ops/commands?status=&order_no=&after=&limit=, by command id. sending is nil in the consumer.
func listCommands(db *gorm.DB, log *slog.Logger, sending *pace) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		status, orderNo, after, limit := Status(q.Get("status")), q.Get("order_no"), q.Get("after"), defaultList
		var err error
		if text := q.Get("limit"); text != "" {
			limit, err = strconv.Atoi(text)
		}
		switch {
		case err != nil || limit < 1 || limit > maxList:
			ops.Problem(w, http.StatusBadRequest, "bad-parameter", "limit must be from 1 to "+strconv.Itoa(maxList))
			return
		case status != "" && !slices.Contains(statuses, status):
			ops.Problem(w, http.StatusBadRequest, "bad-parameter", "status must be one of PENDING, SENDING, SENT, RETRY, UNKNOWN, FAILED")
			return
		case orderNo != "" && !valid(orderNo) || after != "" && !valid(after):
			ops.Problem(w, http.StatusBadRequest, "bad-parameter", "order_no and after must be at most 128 bytes of text")
			return
		}
		find := db.WithContext(r.Context()).Where("command_id > ?", after).Order("command_id").Limit(limit)
		if status != "" {
			find = find.Where("status = ?", status)
		}
		if orderNo != "" {
			find = find.Where("order_no = ?", orderNo)
		}
		var found []command
		if err := find.Find(&found).Error; err != nil {
			unavailable(w, r, log, err)
			return
		}
		page := struct {
			Commands []listed `json:"commands"`
			Next     string   `json:"next,omitempty"`
			Sending  *pace    `json:"sending,omitempty"`
		}{Commands: make([]listed, len(found)), Sending: sending}
		for i, c := range found {
			page.Commands[i] = listed{c.view(), c.TakeoverCount, c.LastErrorCode, utc(c.NextAttemptAt)}
		}
		if len(found) == limit {
			page.Next = found[limit-1].CommandID
		}
		ops.WriteJSON(w, http.StatusOK, page)
	})
}

// valid keeps out of SQL what cannot be an id, such as bytes that Postgres refuses as text.
func valid(id string) bool {
	return id != "" && len(id) <= 128 && utf8.ValidString(id) && !slices.Contains([]byte(id), 0)
}

// effects reads back what the events of a page did: each one's command, as it stands.
func effects(db *gorm.DB) func(context.Context, []facts.Fact) error {
	return func(ctx context.Context, page []facts.Fact) error {
		ids := make([]string, len(page))
		for i, f := range page {
			ids[i] = f.EventID
		}
		var found []command
		if err := db.WithContext(ctx).Where("event_id IN ?", ids).Find(&found).Error; err != nil {
			return err
		}
		byEvent := map[string]*facts.Effect{}
		for _, c := range found {
			if e := byEvent[c.EventID]; e != nil {
				e.Copies++
				continue
			}
			byEvent[c.EventID] = &facts.Effect{Kind: c.Kind, Ref: c.CommandID, State: string(c.Status), Copies: 1}
		}
		for i := range page {
			page[i].Effect = byEvent[page[i].EventID]
		}
		return nil
	}
}

// A command that no applied event stands behind would be a message about nothing.
const selectFaults = `
SELECT command_id, order_no, event_id FROM t_notification_command c
WHERE NOT EXISTS (
    SELECT FROM t_message_consume m
    WHERE m.consumer_group = @group AND m.event_id = c.event_id AND m.status = 'SUCCESS' AND m.outcome = 'applied')
ORDER BY command_id LIMIT 1000`

func faults(db *gorm.DB) func(context.Context) ([]facts.Fault, error) {
	return func(ctx context.Context) ([]facts.Fault, error) {
		var found []command
		err := db.WithContext(ctx).Raw(selectFaults, map[string]any{"group": Group}).Scan(&found).Error
		all := make([]facts.Fault, len(found))
		for i, c := range found {
			all[i] = facts.Fault{Ref: c.CommandID, OrderNo: c.OrderNo, EventID: c.EventID, Detail: "a command without an applied event"}
		}
		return all, err
	}
}
