package inbox

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/facts"
)

// LogRow is a row of the consume log as operators see it.
type LogRow struct {
	EventID          string     `json:"event_id"`
	EventType        string     `json:"event_type"`
	AggregateID      string     `json:"order_no"`
	AggregateVersion int64      `json:"version"`
	Status           Status     `json:"status"`
	Outcome          *string    `json:"outcome,omitempty"`
	ResultRef        *string    `json:"result_ref,omitempty"`
	RetryCount       int        `json:"retry_count"`
	NextRetryAt      *time.Time `json:"next_retry_at,omitempty"`
	HeldBy           *string    `json:"held_by,omitempty"`
	Skipped          bool       `json:"skipped,omitempty"`
	ErrorClass       *string    `json:"error_class,omitempty"`
	ErrorCode        *string    `json:"error_code,omitempty"`
	ErrorText        *string    `json:"error_text,omitempty"`
	Topic            string     `json:"topic"`
	Partition        int32      `json:"partition"`
	Offset           int64      `json:"offset"`
	FirstReceivedAt  time.Time  `json:"first_received_at"`
	UpdatedAt        time.Time  `json:"updated_at"`
}

// Filter narrows a list. Empty fields do not.
type Filter struct {
	Status  string // of the log, or the state of a letter
	OrderNo string
	After   string // the last id of the page before
	Limit   int
}

const listLog = `
SELECT c.*, m.error_class, m.error_code, m.error_text
FROM t_message_consume c LEFT JOIN t_message_retry m USING (consumer_group, event_id)
WHERE c.consumer_group = @group AND c.event_id > @after`

// Log lists the consume log by event id.
func Log(ctx context.Context, db *gorm.DB, group string, f Filter) ([]LogRow, error) {
	rows := []LogRow{}
	query := listLog
	if f.Status != "" {
		query += ` AND c.status = @status`
	}
	if f.OrderNo != "" {
		query += ` AND c.aggregate_id = @order`
	}
	err := db.WithContext(ctx).Raw(query+` ORDER BY c.event_id LIMIT @limit`, map[string]any{
		"group": group, "after": f.After, "status": f.Status, "order": f.OrderNo, "limit": f.Limit,
	}).Scan(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("listing the consume log: %w", err)
	}
	return rows, nil
}

// Letter is a dead letter without its contents.
type Letter struct {
	LetterID       int64      `json:"letter_id"`
	Topic          string     `json:"topic"`
	Partition      int32      `json:"partition"`
	Offset         int64      `json:"offset"`
	PayloadHash    string     `json:"payload_hash"`
	EventID        *string    `json:"event_id"`
	EventType      *string    `json:"event_type"`
	AggregateID    *string    `json:"order_no"`
	RecordTime     time.Time  `json:"record_time"`
	ErrorClass     string     `json:"error_class"`
	ErrorCode      string     `json:"error_code"`
	ErrorText      string     `json:"error_text"`
	Attempts       int        `json:"attempts"`
	FirstHash      *string    `json:"first_hash,omitempty"`
	FirstTopic     *string    `json:"first_topic,omitempty"`
	FirstPartition *int32     `json:"first_partition,omitempty"`
	FirstOffset    *int64     `json:"first_offset,omitempty"`
	Owner          string     `json:"owner"`
	State          string     `json:"state"`
	ClosedBy       *string    `json:"closed_by,omitempty"`
	ClosedReason   *string    `json:"closed_reason,omitempty"`
	ClosedAt       *time.Time `json:"closed_at,omitempty"`
	FirstSeenAt    time.Time  `json:"first_seen_at"`
	LastSeenAt     time.Time  `json:"last_seen_at"`
}

// The contents are left out by name: a list is seen by more people than may see a payload.
const letterColumns = `letter_id, topic, partition, "offset", payload_hash, event_id, event_type, aggregate_id, record_time,
    error_class, error_code, error_text, attempts, first_hash, first_topic, first_partition, first_offset, owner,
    state, closed_by, closed_reason, closed_at, first_seen_at, last_seen_at`

const listLetters = `
SELECT ` + letterColumns + ` FROM t_dead_letter
WHERE consumer_group = @group AND letter_id > @after
  AND (@status = '' OR state = @status) AND (@order = '' OR aggregate_id = @order)
ORDER BY letter_id LIMIT @limit`

// Letters lists dead letters by their number, after the given one.
func Letters(ctx context.Context, db *gorm.DB, group string, after int64, f Filter) ([]Letter, error) {
	rows := []Letter{}
	err := db.WithContext(ctx).Raw(listLetters, map[string]any{
		"group": group, "after": after, "status": f.Status, "order": f.OrderNo, "limit": f.Limit,
	}).Scan(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("listing dead letters: %w", err)
	}
	return rows, nil
}

// A reconciler sees archived rows too. Each side is cut to a page by its own primary key before they are merged.
const listFacts = `
SELECT event_id, event_type, aggregate_id, aggregate_version, request_hash, status, coalesce(outcome, '') AS outcome,
    partition, "offset", updated_at
FROM ((SELECT ` + archivedColumns + ` FROM t_message_consume WHERE consumer_group = @group AND %[1]s ORDER BY event_id LIMIT @limit)
    UNION ALL
    (SELECT ` + archivedColumns + ` FROM t_message_consume_archive WHERE consumer_group = @group AND %[1]s ORDER BY event_id LIMIT @limit)) f
ORDER BY event_id LIMIT @limit`

// Facts gives up to limit rows with an event id greater than after, or those of the given events alone.
func Facts(ctx context.Context, db *gorm.DB, group, after string, limit int, events []string) ([]facts.Fact, error) {
	which := `event_id > @after`
	if len(events) > 0 {
		which, limit = `event_id IN @events`, len(events)
	}
	query := db.WithContext(ctx).Raw(fmt.Sprintf(listFacts, which), map[string]any{
		"group": group, "after": after, "limit": limit, "events": events,
	})
	var rows []struct {
		EventID, EventType, AggregateID, RequestHash, Status, Outcome string
		AggregateVersion, Offset                                      int64
		Partition                                                     int32
		UpdatedAt                                                     time.Time
	}
	if err := query.Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("listing facts: %w", err)
	}
	page := make([]facts.Fact, len(rows))
	for i, r := range rows {
		page[i] = facts.Fact{
			EventID: r.EventID, EventType: r.EventType, OrderNo: r.AggregateID, Version: r.AggregateVersion, Hash: r.RequestHash,
			Status: r.Status, Outcome: r.Outcome, Partition: r.Partition, Offset: r.Offset, UpdatedAt: r.UpdatedAt.UTC(),
		}
	}
	return page, nil
}

// Counts is the size of what is unfinished in a group.
type Counts struct {
	Lane        map[Status]int64 // PROCESSING (claimed), RETRY, WAITING and DEAD rows
	OpenLetters int64
}

const countUnfinished = `
SELECT status, count(*) AS rows FROM t_message_consume
WHERE consumer_group = @group AND status IN ('PROCESSING', 'RETRY', 'WAITING', 'DEAD') GROUP BY status
UNION ALL
SELECT 'OPEN', count(*) FROM t_dead_letter WHERE consumer_group = @group AND state = 'OPEN'`

// Count reads Counts from the partial indexes; it is cheap while little is unfinished.
func Count(ctx context.Context, db *gorm.DB, group string) (Counts, error) {
	var rows []struct {
		Status string
		Rows   int64
	}
	if err := db.WithContext(ctx).Raw(countUnfinished, map[string]any{"group": group}).Scan(&rows).Error; err != nil {
		return Counts{}, fmt.Errorf("counting unfinished messages: %w", err)
	}
	c := Counts{Lane: map[Status]int64{StatusProcessing: 0, StatusRetry: 0, StatusWaiting: 0, StatusDead: 0}}
	for _, r := range rows {
		if r.Status == "OPEN" {
			c.OpenLetters = r.Rows
			continue
		}
		c.Lane[Status(r.Status)] = r.Rows
	}
	return c, nil
}
