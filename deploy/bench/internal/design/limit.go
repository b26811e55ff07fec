package design

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/paycast/shared/postgres"
)

// limit claims rows and marks them sent, one statement after the other on one connection, and sends nothing. It works on
// our table with our settings, but with the plainest statements: no order, no fence, no place of the record. That is
// what the database can do for one relay.
func limit() Design {
	d := ours()
	return Design{
		Name: "limit", Label: "claim and mark alone", Silent: true,
		Backlog: d.Backlog, Fill: d.Fill, Done: d.Done, Run: runLimit,
	}
}

const limitClaim = `
update t_outbox_event set status = 'SENDING', owner_token = 'limit', lease_until = now() + interval '15 seconds', updated_at = now()
where event_id = any(array(
  select event_id from t_outbox_event
  where status in ('PENDING', 'RETRY') and sent_at is null and held_by is null and destination = $1 and alone = false and next_retry_at <= now()
  order by next_retry_at, created_at limit $2 for update skip locked))
returning event_id, event_type, message_key, aggregate_version, payload, headers`

const limitMark = `
update t_outbox_event
set status = 'SENT', broker_partition = 0, sent_at = now(), owner_token = null, lease_until = null, updated_at = now()
where event_id = any($1)`

func runLimit(ctx context.Context, t Target) error {
	cfg, err := postgres.Config(t.DatabaseURL, "limit")
	if err != nil {
		return err
	}
	// As our relay's connections are.
	cfg.RuntimeParams["enable_seqscan"] = "off"
	cfg.RuntimeParams["synchronous_commit"] = "off"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for ctx.Err() == nil {
		found, err := conn.Query(ctx, limitClaim, Topic, 500)
		if err != nil {
			return err
		}
		var ids []string
		var id, kind, key, payload, headers string
		var version int64
		if _, err := pgx.ForEachRow(found, []any{&id, &kind, &key, &version, &payload, &headers}, func() error {
			ids = append(ids, id)
			return nil
		}); err != nil {
			return err
		}
		if len(ids) == 0 {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if _, err := conn.Exec(ctx, limitMark, ids); err != nil {
			return err
		}
	}
	return nil
}
