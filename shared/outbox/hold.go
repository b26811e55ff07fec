package outbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// holdRows takes candidates out of the claim's way whose queue cannot move with them: its first row is DEAD, waits for
// its next try, stands outside the window, or has been in other hands for longer than a send should take.
//
// The row in front is locked (FOR SHARE, the newest version is looked at) until the holds are committed. Its settle
// waits for that, and then frees what is held in a statement of its own; so no row is ever held by one that has gone.
// Rows that somebody has locked are skipped, in front and behind: nothing waits for anything, nothing deadlocks.
const holdRows = `with` + selectCandidates + `
),
behind as materialized (
  select c.ctid, f.event_id as front
  from cand c
  cross join lateral (
    select e.event_id
    from t_outbox_event e
    where e.destination = @destination and e.message_key = c.message_key and e.aggregate_version < c.aggregate_version
      and e.sent_at is null and not e.skipped
    order by e.aggregate_version
    limit 1
  ) f
),
stuck as materialized (
  select event_id
  from t_outbox_event
  where event_id = any(array(select front from behind))
    and not skipped
    and event_id <> all(array(select event_id from cand))
    and (status in ('PENDING', 'RETRY', 'DEAD')
      or status = 'SENDING' and updated_at < now() - interval '1 second')
  for share skip locked
),
waits as materialized (
  select ctid
  from t_outbox_event
  where ctid = any(array(select ctid from behind where front in (select event_id from stuck)))
    and status in ('PENDING', 'RETRY') and held_by is null
  for update skip locked
)
update t_outbox_event e
set held_by = b.front, updated_at = now()
from behind b
where b.ctid in (select ctid from waits) and e.ctid = b.ctid`

// holdBack looks at the same candidates as a claim does and returns how many are held now.
func (r *Relay) holdBack(ctx context.Context, l lane) (int, error) {
	tag, err := r.db.Exec(ctx, holdRows, pgx.StrictNamedArgs{
		"destination": l.destination, "alone": l.alone, "from": l.from, "batch": r.c.Batch,
	})
	if err != nil {
		return 0, fmt.Errorf("holding outbox rows behind their key's first: %w", err)
	}
	if tag.RowsAffected() > 0 {
		r.c.Log.Info("outbox rows wait behind an earlier one of their key", "destination", l.destination, "rows", tag.RowsAffected())
	}
	return int(tag.RowsAffected()), nil
}
