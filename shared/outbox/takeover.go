package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
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
    takeover_count     = least(takeover_count, 999999999) + 1, -- a count at the end of its range must not stop the others
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
	tag, err := pgx.ForEachRow(found, []any{&id, &order, &destination, &eventType, &status, &takeovers}, func() error {
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
	if tag.RowsAffected() > 0 {
		r.nudge() // these are due, and there may be more
	}
	return nil
}

// suspectLives is how long a relay must live on with a row that is claimed alone until the row is no longer suspected of
// ending it: what crashes a relay does so when it is touched, or while the broker's answer is read.
const suspectLives = time.Second

// clearSuspect forgets how many relays have died with a row, because this one has not.
const clearSuspect = `
update t_outbox_event set takeover_count = 0, updated_at = now()
where event_id = any(array(select unnest(event_ids) from t_outbox_claim where owner_token = @token)) and owner_token = @token`

// clearOfSuspicion is a courtesy to the row: without it, a relay that is killed while Kafka hangs counts against it.
func (r *Relay) clearOfSuspicion(ctx context.Context, token string) {
	ctx, cancel := context.WithTimeout(ctx, r.c.Margin)
	defer cancel()
	if _, err := r.db.Exec(ctx, clearSuspect, pgx.StrictNamedArgs{"token": token}); err != nil {
		r.c.Log.Warn("an outbox row that crashes no relay could not be cleared of the suspicion", "error", err)
	}
}
