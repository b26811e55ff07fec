package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/postgres"
)

// maxRedelivered is how many events one request may ask for.
const maxRedelivered = 1000

// An event that both have, perhaps with other bytes, is the outbox's.
const recordsOf = `
select * from (
  select distinct on (event_id) * from (
    select 1 as place, event_id, aggregate_id, aggregate_version, destination, message_key, payload, headers, broker_partition, broker_offset, sent_at
    from t_outbox_event where event_id in @ids and status = 'SENT'
    union all
    select 2, event_id, aggregate_id, aggregate_version, destination, message_key, payload, headers, broker_partition, broker_offset, sent_at
    from t_outbox_archive where event_id in @ids
  ) both_places order by event_id, place
) one_of_each order by aggregate_id, aggregate_version`

// Records gives the named events as they were sent, key, headers and bytes, each once, from the outbox or its archive, in
// the order of their versions. What is not there, or not sent yet, is left out.
func Records(ctx context.Context, db *gorm.DB, ids ...string) ([]event.Record, error) {
	var rows []struct {
		EventID, Destination, MessageKey, Payload, Headers string
		BrokerPartition                                    int32
		BrokerOffset                                       *int64
		SentAt                                             time.Time
	}
	if err := db.WithContext(ctx).Raw(recordsOf, map[string]any{"ids": ids}).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("reading sent events: %w", err)
	}
	records := make([]event.Record, 0, len(rows))
	for _, row := range rows {
		r := event.Record{
			Topic: row.Destination, Partition: row.BrokerPartition, Offset: -1, Time: row.SentAt.UTC(),
			Key: []byte(row.MessageKey), Value: []byte(row.Payload), Headers: decodeHeaders(row.Headers),
		}
		if row.BrokerOffset != nil {
			r.Offset = *row.BrokerOffset
		}
		records = append(records, r)
	}
	return records, nil
}

// record answers GET /ops/outbox/{id}/record for another service, which has its reason and its audit. It holds the
// payload, so no list and no person's command shows it.
func record(db *gorm.DB, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		records, err := Records(r.Context(), db, id)
		switch {
		case err != nil:
			unreadable(w, r, log, err)
		case len(records) == 0:
			ops.Problem(w, http.StatusNotFound, "not-found", "no event "+id+" has been sent from this outbox")
		default:
			ops.WriteJSON(w, http.StatusOK, records[0])
		}
	})
}

// Redelivery sends events once more to one consumer group, on a topic that no other group reads.
type Redelivery struct {
	DB        *gorm.DB
	Publisher *kafka.Publisher // nil where this process has no Kafka; then it says so
	Log       *slog.Logger
}

// groupForm is what a group's name may be. It becomes a part of a topic's name, and the consume log keeps 128 characters.
var groupForm = regexp.MustCompile(`^[a-z][a-z0-9._-]{0,127}$`)

// redelivery is what is asked for.
type redelivery struct {
	audit.By
	Group    string   `json:"group"`
	EventIDs []string `json:"event_ids"`
	ReplayID string   `json:"replay_id"`
}

// Mount opens POST /ops/redeliver {actor, reason, group, event_ids, replay_id}. With ?dry_run=true it only says whether
// it could.
func (d Redelivery) Mount(o *ops.Server) {
	o.Handle("POST /ops/redeliver", http.HandlerFunc(d.handle))
}

func (d Redelivery) handle(w http.ResponseWriter, r *http.Request) {
	var ask redelivery
	if err := ops.ReadJSON(r, &ask); err != nil || ask.Check() != nil || ask.Group == "" || len(ask.EventIDs) == 0 || len(ask.EventIDs) > maxRedelivered {
		ops.Problem(w, http.StatusBadRequest, "bad-request", fmt.Sprintf(`send {"actor", "reason", "group", "event_ids"}, with 1 to %d ids`, maxRedelivered))
		return
	}
	if !groupForm.MatchString(ask.Group) {
		ops.Problem(w, http.StatusBadRequest, "bad-request", "a group's name has at most 128 lower-case letters, digits, dots, dashes and underscores, a letter first")
		return
	}
	records, err := Records(r.Context(), d.DB, ask.EventIDs...)
	switch {
	case err != nil:
		unreadable(w, r, d.Log, err)
		return
	case len(records) < distinct(ask.EventIDs):
		ops.Problem(w, http.StatusConflict, "conflict", fmt.Sprintf("%d of %d events are not in this outbox or its archive, or not sent yet; nothing was sent",
			distinct(ask.EventIDs)-len(records), len(ask.EventIDs)))
		return
	case d.Publisher == nil:
		ops.Problem(w, http.StatusConflict, "conflict", "this process has no KAFKA_BROKERS and cannot send")
		return
	}
	// Without this look a dry run would promise what cannot be.
	if err := d.Publisher.LookUp(r.Context(), event.RedeliveryTopic(ask.Group)); err != nil {
		d.failed(w, r, ask.Group, 0, len(records), err)
		return
	}
	answer := map[string]any{"group": ask.Group, "topic": event.RedeliveryTopic(ask.Group), "events": len(records), "sent": 0}
	if audit.DryRun(r) {
		ops.WriteJSON(w, http.StatusOK, answer)
		return
	}
	sent, err := d.send(r.Context(), ask, records)
	answer["sent"] = sent
	if err != nil {
		d.failed(w, r, ask.Group, sent, len(records), err)
		return
	}
	d.Log.WarnContext(r.Context(), "events are sent once more", "group", ask.Group, "events", sent, "actor", ask.Actor)
	ops.WriteJSON(w, http.StatusOK, answer)
}

// failed answers with how far it came. What a relay would blame on the destination, time does not heal.
func (d Redelivery) failed(w http.ResponseWriter, r *http.Request, group string, sent, events int, err error) {
	d.Log.ErrorContext(r.Context(), "a redelivery failed", "group", group, "sent", sent, "events", events, "error", err)
	if classify(err).result == resultRefused {
		ops.Problem(w, http.StatusConflict, "conflict", fmt.Sprintf("%d of %d events were sent: Kafka has no topic %s, or this service may not use it",
			sent, events, event.RedeliveryTopic(group)))
		return
	}
	ops.Problem(w, http.StatusServiceUnavailable, "unavailable",
		fmt.Sprintf("%d of %d events were sent, then the database or Kafka did not answer; asking again does no harm", sent, events))
}

func distinct(ids []string) int {
	seen := map[string]bool{}
	for _, id := range ids {
		seen[id] = true
	}
	return len(seen)
}

// send records what it is about to do, does it, and records the result: a process that dies in between has sent nothing
// that nobody answers for.
func (d Redelivery) send(ctx context.Context, ask redelivery, records []event.Record) (sent int, err error) {
	what := fmt.Sprintf("%d events: %s", len(records), strings.Join(ask.EventIDs[:min(len(ask.EventIDs), 20)], " "))
	if ask.ReplayID != "" {
		what = "replay " + ask.ReplayID + ", " + what
	}
	if err := d.record(ctx, ask, "redeliver", what); err != nil {
		return 0, err
	}
	for _, r := range records {
		// The mark stands behind the event's own headers; the hash does not know it.
		r.Headers = append(r.Headers, event.Header{Key: event.ReplayHeader, Value: []byte(ask.ReplayID)})
		if err = d.Publisher.Publish(event.RedeliveryTopic(ask.Group), kafka.Message(r)); err != nil {
			break
		}
		sent++
	}
	// The request's end must not hide what was done.
	return sent, errors.Join(err, d.record(context.WithoutCancel(ctx), ask, "redelivered", fmt.Sprintf("%d of %d sent", sent, len(records))))
}

func (d Redelivery) record(ctx context.Context, ask redelivery, verb, what string) error {
	return postgres.Transaction(ctx, d.DB, func(tx *gorm.DB) error {
		return audit.Write(ctx, tx, ask.By, verb, "group/"+ask.Group, what)
	})
}
