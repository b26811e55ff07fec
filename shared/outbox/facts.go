package outbox

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/facts"
)

// Facts are the events of the given aggregates, by aggregate id and in version order, as a reconciler compares them.
func Facts(ctx context.Context, db *gorm.DB, aggregateType string, ids []string) (map[string][]facts.Sent, error) {
	var rows []struct {
		EventID, AggregateID, EventType, Destination, Status, Payload string
		AggregateVersion                                              int64
		EventVersion                                                  int
		BrokerPartition                                               *int32
		BrokerOffset                                                  *int64
		CreatedAt                                                     time.Time
	}
	err := db.WithContext(ctx).Table("t_outbox_event").
		Where("aggregate_type = ? and aggregate_id in ?", aggregateType, ids).
		Order("aggregate_id, aggregate_version").Find(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("reading the outbox's facts: %w", err)
	}
	out := make(map[string][]facts.Sent, len(ids))
	for _, r := range rows {
		e := event.Event{
			Type: r.EventType, Version: r.EventVersion, AggregateID: r.AggregateID, AggregateVersion: r.AggregateVersion, Payload: []byte(r.Payload),
		}
		out[r.AggregateID] = append(out[r.AggregateID], facts.Sent{
			EventID: r.EventID, EventType: r.EventType, Version: r.AggregateVersion, Hash: e.Hash(), Status: r.Status,
			Topic: r.Destination, Partition: r.BrokerPartition, Offset: r.BrokerOffset, CreatedAt: r.CreatedAt.UTC(),
		})
	}
	return out, nil
}
