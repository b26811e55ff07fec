package replay

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/ops"
)

// Source is where every event is kept: the outbox and its archive.
type Source interface {
	// Record gives the event as it was sent; ErrNoEvent when there is none, or when it is not sent yet.
	Record(ctx context.Context, eventID string) (event.Record, error)
	// Redeliver sends the event once more, to the group's redelivery topic only.
	Redeliver(ctx context.Context, ask Redelivery) error
}

// Redelivery is what payment is asked to do, and what it writes into its audit.
type Redelivery struct {
	audit.By
	Group    string   `json:"group"`
	EventIDs []string `json:"event_ids"`
	ReplayID string   `json:"replay_id,omitempty"`
}

// Payment is payment's operations API as a Source.
type Payment struct{ Client ops.Client }

// Record asks for GET /ops/outbox/{id}/record.
func (p Payment) Record(ctx context.Context, eventID string) (r event.Record, err error) {
	err = p.Client.GetJSON(ctx, "/ops/outbox/"+url.PathEscape(eventID)+"/record", nil, &r)
	var refused *ops.StatusError
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound && !ops.NoOperation(err) {
		return r, ErrNoEvent
	}
	return r, err
}

// Redeliver asks for POST /ops/redeliver.
func (p Payment) Redeliver(ctx context.Context, ask Redelivery) error {
	return p.Client.PostJSON(ctx, "/ops/redeliver", ask, nil)
}
