package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// mendRows looks through a slice of the unsent rows for what somebody has edited or restored by hand, and returns where
// the next slice begins. A row in SENDING without a note of its claim, or with one that says later than the row, is noted
// for a takeover: so that no row in SENDING is ever out of reach. A DEAD row must have no next_retry_at: the gauges know it by that.
const mendRows = `
with slice as materialized (
  select destination, message_key, aggregate_version, event_id, status, owner_token, lease_until, next_retry_at
  from t_outbox_event
  where sent_at is null and not skipped and (destination, message_key, aggregate_version) > (@destination, @key, @version)
  order by destination, message_key, aggregate_version
  limit @slice
),
noted as (
  insert into t_outbox_claim (owner_token, lease_until, event_ids)
  select owner_token, min(lease_until), array_agg(event_id)
  from slice
  where status = 'SENDING' and lease_until < now()
  group by owner_token
  order by owner_token
  on conflict (owner_token) do update set lease_until = excluded.lease_until,
    event_ids = array(select unnest(t_outbox_claim.event_ids) union select unnest(excluded.event_ids))
),
dead as materialized (
  select event_id
  from t_outbox_event
  where event_id = any(array(select event_id from slice where status = 'DEAD' and next_retry_at is not null)) and status = 'DEAD'
  for update skip locked
),
settled as (
  update t_outbox_event set next_retry_at = null, updated_at = now() where event_id = any(array(select event_id from dead))
)
select destination, message_key, aggregate_version
from slice
order by destination desc, message_key desc, aggregate_version desc
limit case when (select count(*) from slice) = @slice then 1 else 0 end`

// mendSlice bounds what looking for such rows costs while the backlog is long.
const mendSlice = 1000

// strayHolds finds rows that wait for nothing: what holds them is gone, sent, skipped, or not in front of them. Again
// somebody's hand did that. To free one too many would do no harm, because a claim looks at the whole queue of a key.
const strayHolds = `
with stray as materialized (
  select event_id
  from t_outbox_event h
  where held_by is not null and 0 = ( -- a count for each row: the planner joins what is "not exists" in seconds
    select count(*) from t_outbox_event f
    where f.event_id = h.held_by and f.destination = h.destination and f.message_key = h.message_key
      and f.aggregate_version < h.aggregate_version and f.sent_at is null and not f.skipped)
  for update skip locked
)
update t_outbox_event set held_by = null, updated_at = now() where event_id = any(array(select event_id from stray))`

// mendPlace is where the next call of mend goes on; its zero is the beginning.
type mendPlace struct {
	destination, key string
	version          int64
}

// mend brings back rows that no other statement would reach. A call looks at a part of the unsent rows, and the next one goes
// on behind it.
func (r *Relay) mend(ctx context.Context) error {
	ctx, cancel := r.answerWithin(ctx)
	defer cancel()
	var next mendPlace
	err := r.db.QueryRow(ctx, mendRows, pgx.StrictNamedArgs{
		"destination": r.mended.destination, "key": r.mended.key, "version": r.mended.version, "slice": mendSlice,
	}).Scan(&next.destination, &next.key, &next.version)
	switch {
	case err == nil || errors.Is(err, pgx.ErrNoRows):
		r.mended, err = next, nil
	default:
		err = fmt.Errorf("mending outbox rows: %w", err)
	}
	if _, stray := r.db.Exec(ctx, strayHolds); stray != nil {
		err = errors.Join(err, fmt.Errorf("freeing outbox rows that nothing holds: %w", stray))
	}
	return err
}
