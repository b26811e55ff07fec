package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"example.com/paycast/shared/lease"
)

// readClaimed reads what a claim has taken. The claim does not return the rows itself: it would stay uncommitted, and all it
// has locked with it, until a slow relay has read them. Meanwhile the next claim is on its way. Rows are read where the claim
// has left them; by their ids only if one is not there any more.
const readClaimed = `
select event_id, event_type, message_key, aggregate_version, payload, headers, lease_until - @lease::interval - created_at as age
from t_outbox_event
where owner_token = @token and status = 'SENDING' and `

// errClaimBroken: to send the others might be to send a later event of a key before the one that is missing.
var errClaimBroken = errors.New("some of them are in other hands")

// readClaim returns all rows of a claim or none, and tries again while there is time to send them.
func (r *Relay) readClaim(ctx context.Context, hold lease.Hold, l lane, got taken) (rows []row, err error) {
	for failures := 0; ; failures++ {
		rows, err = r.readRows(ctx, "ctid = any(@which)", got.places, hold, l)
		if err == nil && len(rows) < len(got.ids) {
			rows, err = r.readRows(ctx, "event_id = any(@which)", got.ids, hold, l)
		}
		if err == nil && len(rows) < len(got.ids) {
			err = errClaimBroken
		}
		switch {
		case err == nil:
			return rows, nil
		case errors.Is(err, errClaimBroken) || !hold.MayBegin() || ctx.Err() != nil:
			return nil, fmt.Errorf("reading %d claimed outbox rows: %w", len(got.ids), err)
		}
		pause(ctx, jitter(r.c.RetryBase, r.c.Margin, failures))
	}
}

func (r *Relay) readRows(ctx context.Context, where string, which any, hold lease.Hold, l lane) ([]row, error) {
	found, err := r.db.Query(ctx, readClaimed+where, pgx.StrictNamedArgs{"token": hold.Token, "which": which, "lease": r.c.Lease})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, func(found pgx.CollectableRow) (row, error) {
		one := row{destination: l.destination, alone: l.alone}
		return one, found.Scan(&one.eventID, &one.eventType, &one.key, &one.version, &one.payload, &one.headers, &one.age)
	})
}

// chains splits a claim into one chain per key, each in version order. UPDATE ... RETURNING has no order of its own.
func chains(rows []row) [][]row {
	slices.SortFunc(rows, func(a, b row) int {
		if c := strings.Compare(a.key, b.key); c != 0 {
			return c
		}
		return int(a.version - b.version)
	})
	var out [][]row
	for start, i := 0, 1; i <= len(rows); i++ {
		if i == len(rows) || rows[i].key != rows[start].key {
			out = append(out, rows[start:i])
			start = i
		}
	}
	// The oldest first: sorting by key has lost it.
	slices.SortStableFunc(out, func(a, b []row) int { return int(b[0].age - a[0].age) })
	return out
}
