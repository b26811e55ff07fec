package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// lane is one kind of work that is due.
type lane struct {
	destination string
	alone       bool
	paused      bool // the destination is paused and its probe is due

	from time.Time // claims look for no row that was due earlier; see selectCandidates
	left bool      // the last claim left rows that are due, or may have
}

// dueLanes is the only statement of an idle relay. It steps over the index from one (destination, alone) to the next,
// so its cost does not depend on the number of rows, but for those that are being sent. The last column says whether a
// lease has run out.
const dueLanes = `
with recursive lanes as (
  (select destination, alone from t_outbox_event
   where status in ('PENDING', 'RETRY') and sent_at is null and held_by is null and next_retry_at is not null
   order by destination, alone limit 1)
  union all
  select n.destination, n.alone from lanes l cross join lateral (
    select destination, alone from t_outbox_event
    where status in ('PENDING', 'RETRY') and sent_at is null and held_by is null and next_retry_at is not null
      and (destination, alone) > (l.destination, l.alone)
    order by destination, alone limit 1) n
)
select l.destination, l.alone, coalesce(d.state = 'PAUSED', false) as paused, false as expired
from lanes l left join t_outbox_destination d using (destination)
where (d.state is distinct from 'PAUSED' or d.probe_at <= now())
  and exists (select from t_outbox_event e
              where e.destination = l.destination and e.alone = l.alone and e.status in ('PENDING', 'RETRY')
                and e.sent_at is null and e.held_by is null and e.next_retry_at <= now())
union all
select '', false, false, true
where exists (select from t_outbox_claim where lease_until < now())`

// due tells what could be claimed now, and whether a lease has expired.
func (r *Relay) due(ctx context.Context) (lanes []lane, expired bool, err error) {
	found, err := r.db.Query(ctx, dueLanes)
	if err != nil {
		return nil, false, fmt.Errorf("looking for due outbox rows: %w", err)
	}
	var l lane
	var lost bool
	_, err = pgx.ForEachRow(found, []any{&l.destination, &l.alone, &l.paused, &lost}, func() error {
		if lost {
			expired = true
		} else {
			lanes = append(lanes, l)
		}
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("looking for due outbox rows: %w", err)
	}
	return lanes, expired, nil
}
