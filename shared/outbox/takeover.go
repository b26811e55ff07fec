package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Error codes that the relay itself gives to rows.
const (
	codeLeaseExpired = "lease_expired" // the relay that had the row is gone, or was paused
	codeCrashesRelay = "crashes_relay" // it died with this row more often than chance explains
	codeTooLarge     = "message_too_large"
)

// takeOver ends claims whose lease has run out, by the database's clock. Their rows become due again, and the ordinary
// claim takes them, under the ordinary rule of order. A row whose claims ended this way @crashes times is claimed alone
// from then on: it, and nothing else, is then in the relay's hands. It is DEAD when its relay has died @crashes times
// more. Once is no proof: a relay that somebody kills always has some row in its hands. Any answer, and any second that a
// relay lives on with the row, clears it; see settleRest and clearSuspect.
//
// A claim's token is tested on the locked row, so a row settled meanwhile is left as it is. A row that somebody else has
// locked is skipped. The claim is forgotten when a later look finds no row under its token; until then it comes after the
// other claims, once a second.
const takeOver = `
with ended as materialized (
  select owner_token, event_ids
  from t_outbox_claim
  where lease_until < now()
  order by lease_until
  limit 10
  for update skip locked
),
left_open as materialized (
  select e.event_id, e.owner_token
  from ended c join t_outbox_event e on e.event_id = any(c.event_ids) and e.owner_token = c.owner_token
),
forgotten as (
  delete from t_outbox_claim
  where owner_token = any(array(select owner_token from ended except select owner_token from left_open))
),
seen as (
  update t_outbox_claim set lease_until = now() + interval '1 second'
  where owner_token = any(array(select owner_token from left_open))
),
expired as materialized (
  select event_id
  from t_outbox_event
  where event_id = any(array(select event_id from left_open)) and owner_token = any(array(select owner_token from ended))
  for update skip locked
)
update t_outbox_event
set status             = case when ` + crashes + ` then 'DEAD' else 'RETRY' end,
    last_error_code    = case when ` + crashes + ` then @crashes_relay else @lease_expired end,
    last_error_message = 'claimed by ' || owner_token || ', not settled by ' || lease_until,
    alone              = takeover_count + 1 >= @crashes,
    takeover_count     = least(takeover_count, 999999999) + 1, -- a number that somebody has set must not stop the others
    next_retry_at      = case when ` + crashes + ` then null else now() + ` + backoff + ` end,
    owner_token = null, lease_until = null, updated_at = now()
where event_id = any(array(select event_id from expired))
returning event_id, aggregate_id, destination, event_type, status, takeover_count`

// crashes says that this takeover is the last one: the relay has died with the row alone in its hands too often.
const crashes = `alone and takeover_count + 1 >= 2 * @crashes`

// backoff is exponential in how often the row has come back without an answer, with full jitter and a cap. The counts
// are those before the row's update.
const backoff = `random() * least(@cap::interval, @base::interval * power(2, least(retry_count + takeover_count, 30)))`

func (r *Relay) takeOver(ctx context.Context) error {
	found, err := r.db.Query(ctx, takeOver, pgx.StrictNamedArgs{
		"crashes": r.c.Crashes, "base": r.c.RetryBase, "cap": r.c.RetryCap,
		"crashes_relay": codeCrashesRelay, "lease_expired": codeLeaseExpired,
	})
	if err != nil {
		return fmt.Errorf("taking over outbox rows: %w", err)
	}
	var id, order, destination, eventType, status string
	var takeovers int
	_, err = pgx.ForEachRow(found, []any{&id, &order, &destination, &eventType, &status, &takeovers}, func() error {
		r.m.expired.Inc()
		log := r.c.Log.Warn
		if status == Dead {
			r.m.attempt(destination, eventType, resultCrashed)
			log = r.c.Log.Error
		}
		log("the lease of an outbox row ran out", "event_id", id, "order_no", order, "destination", destination,
			"result", status, "takeovers", takeovers)
		return nil
	})
	if err != nil {
		return fmt.Errorf("taking over outbox rows: %w", err)
	}
	return nil
}

// mendRows looks through a slice of the unsent rows for what somebody has edited or restored by hand, and returns where
// the next slice begins. A row in SENDING without a note of its claim, or with one that says later than the row, is noted
// for a takeover: so that no row in SENDING is ever out of reach. A DEAD row is due never, or it would be counted as waiting.
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

// slice is where the next call of mend goes on; its zero is the beginning.
type slice struct {
	destination, key string
	version          int64
}

// mend brings back rows that no other statement would reach. A call looks at a part of the unsent rows, and the next one goes
// on behind it.
func (r *Relay) mend(ctx context.Context) error {
	ctx, cancel := r.answerWithin(ctx)
	defer cancel()
	var next slice
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

// suspectLives is how long a relay must live on with a row that is claimed alone until the row is no longer suspected of
// ending it: what crashes a relay does so when it is touched, or while the broker's answer is read.
const suspectLives = time.Second

// clearSuspect forgets how many relays have died with a row, because this one has not.
const clearSuspect = `
update t_outbox_event set takeover_count = 0, updated_at = now()
where event_id = any(array(select unnest(event_ids) from t_outbox_claim where owner_token = @token)) and owner_token = @token`

// clear is a courtesy to the row: without it, a relay that is killed while Kafka hangs counts against it.
func (r *Relay) clear(ctx context.Context, token string) {
	ctx, cancel := context.WithTimeout(ctx, r.c.Margin)
	defer cancel()
	if _, err := r.db.Exec(ctx, clearSuspect, pgx.StrictNamedArgs{"token": token}); err != nil {
		r.c.Log.Warn("an outbox row that crashes no relay could not be cleared of the suspicion", "error", err)
	}
}
