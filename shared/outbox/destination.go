package outbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// markPaused stops claims for a destination. Each refused probe doubles the time until the next.
const markPaused = `
insert into t_outbox_destination as d (destination, state, cause, probe_at, probes)
values (@destination, 'PAUSED', @cause, now() + @base::interval, 1)
on conflict (destination) do update
set since    = case when d.state = 'PAUSED' then d.since else now() end,
    state    = 'PAUSED',
    cause    = excluded.cause,
    probe_at = now() + (0.5 + random() / 2) * least(@cap::interval, @base::interval * power(2, least(d.probes, 30))),
    probes   = d.probes + 1`

// pauseDestination keeps a destination's fault off its rows. A failure to write it costs another refusal.
func (r *Relay) pauseDestination(ctx context.Context, row row, a answer) {
	log := r.c.Log.With("destination", row.destination, "code", a.code)
	ctx, cancel := r.answerWithin(context.WithoutCancel(ctx))
	defer cancel()
	_, err := r.db.Exec(ctx, markPaused, pgx.StrictNamedArgs{
		"destination": row.destination, "cause": a.code, "base": r.c.RetryBase, "cap": r.c.RetryCap,
	})
	if err != nil {
		log.Error("a destination refuses events and could not be paused", "error", err)
		return
	}
	r.stale.Store(true)
	log.Error("a destination refuses events; it is paused and will be probed", "event_id", row.eventID, "order_no", row.key)
}

// takeProbe lets one relay, and one row, try a paused destination. Should the relay die, the probe is due again after
// its lease.
const takeProbe = `
update t_outbox_destination set probe_at = now() + @lease
where destination = @destination and state = 'PAUSED' and probe_at <= now()`

func (r *Relay) claimProbe(ctx context.Context, destination string) (bool, error) {
	ctx, cancel := r.answerWithin(ctx)
	defer cancel()
	tag, err := r.db.Exec(ctx, takeProbe, pgx.StrictNamedArgs{"destination": destination, "lease": r.c.Lease})
	if err != nil {
		return false, fmt.Errorf("taking the probe of a paused destination: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

const markOpen = `
update t_outbox_destination set state = 'OPEN', cause = null, probe_at = null, probes = 0, since = now()
where destination = @destination and state = 'PAUSED'`

// resume opens a destination whose probe was accepted. If that cannot be written, the next probe opens it.
func (r *Relay) resume(ctx context.Context, destination string) {
	ctx, cancel := r.answerWithin(context.WithoutCancel(ctx))
	defer cancel()
	_, err := r.db.Exec(ctx, markOpen, pgx.StrictNamedArgs{"destination": destination})
	if err != nil {
		r.c.Log.Error("a destination accepts events again and could not be opened", "destination", destination, "error", err)
		return
	}
	r.c.Log.Info("a destination accepts events again", "destination", destination)
}
