package notify

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

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
	return id != "" && len(id) <= 128 && ops.IsText(id)
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

// A command that no applied event of its order stands behind, also no archived one, would be a message about nothing, or to
// somebody else. Its text is compared with what was written and not with a template, which may have had other words then.
const selectFaults = `
WITH applied AS (
    SELECT event_id, aggregate_id FROM t_message_consume
    WHERE consumer_group = @group AND status = 'SUCCESS' AND outcome = 'applied'
    UNION ALL
    SELECT event_id, aggregate_id FROM t_message_consume_archive
    WHERE consumer_group = @group AND status = 'SUCCESS' AND outcome = 'applied')
SELECT c.command_id AS ref, c.order_no, c.event_id, CASE WHEN a.event_id IS NULL
    THEN 'a command without an applied event of its order' ELSE 'the text is not the one that was written' END AS detail
FROM t_notification_command c LEFT JOIN applied a ON a.event_id = c.event_id AND a.aggregate_id = c.order_no
WHERE a.event_id IS NULL OR c.text_digest <> sha256(convert_to(c.text, 'UTF8'))
ORDER BY c.command_id LIMIT 1000`

func faults(db *gorm.DB) func(context.Context) ([]facts.Fault, error) {
	return func(ctx context.Context) (found []facts.Fault, err error) {
		err = db.WithContext(ctx).Raw(selectFaults, map[string]any{"group": Group}).Scan(&found).Error
		return found, err
	}
}
