package outbox

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/facts"
)

// allOf reads the events of aggregates wherever they stand. One that somebody has put into both places is one event.
const allOf = `
select event_id, aggregate_id, event_type, event_version, aggregate_version, destination, status, payload, broker_partition, broker_offset, created_at
from t_outbox_event where aggregate_type = @type and aggregate_id in @ids
union
select event_id, aggregate_id, event_type, event_version, aggregate_version, destination, 'SENT', payload, broker_partition, broker_offset, created_at
from t_outbox_archive where aggregate_type = @type and aggregate_id in @ids
order by aggregate_id, aggregate_version`

// Facts are the events of the given aggregates, archived ones too, by aggregate id and in version order, as a reconciler
// compares them.
func Facts(ctx context.Context, db *gorm.DB, aggregateType string, ids []string) (map[string][]facts.Sent, error) {
	var rows []struct {
		EventID, AggregateID, EventType, Destination, Status, Payload string
		AggregateVersion                                              int64
		EventVersion                                                  int
		BrokerPartition                                               *int32
		BrokerOffset                                                  *int64
		CreatedAt                                                     time.Time
	}
	err := db.WithContext(ctx).Raw(allOf, map[string]any{"type": aggregateType, "ids": ids}).Scan(&rows).Error
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
