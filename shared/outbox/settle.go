package outbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// outcome is what became of one claimed row.
type outcome struct {
	row    row
	answer answer
}

// settleSent, settleRest and freeHeld write outcomes in sets, in one transaction and one round trip. The first two are
// fenced: token and SENDING prove that the claim is still ours. They join a list; on the relay's connections, which plan
// without table scans (see connect), that is one probe of the primary key per row, whatever the statistics say.
const settleSent = `
update t_outbox_event e
set status = 'SENT', broker_partition = a.partition, broker_offset = nullif(a.place, -1), sent_at = now(),
    alone = false, owner_token = null, lease_until = null, updated_at = now()
from unnest(@ids::text[], @partitions::int[], @offsets::bigint[]) as a(event_id, partition, place)
where e.event_id = a.event_id and e.owner_token = @token and e.status = 'SENDING'`

// settleRest: a row without a new status was not sent at all and goes back to where it was. One that was sent has not
// crashed the relay, whatever the answer.
const settleRest = `
update t_outbox_event e
set status             = coalesce(a.status, case when e.last_error_code is null then 'PENDING' else 'RETRY' end),
    next_retry_at      = case a.status when 'RETRY' then now() + ` + backoff + ` when 'DEAD' then null else e.next_retry_at end,
    retry_count        = least(e.retry_count, 999999999) + a.counted,
    takeover_count     = case when a.status is null then e.takeover_count else 0 end,
    alone              = e.alone or a.alone,
    last_error_code    = coalesce(a.code, e.last_error_code),
    last_error_message = coalesce(a.message, e.last_error_message),
    owner_token = null, lease_until = null, updated_at = now()
from unnest(@ids::text[], @statuses::text[], @counted::int[], @alone::bool[], @codes::text[], @messages::text[])
     as a(event_id, status, counted, alone, code, message)
where e.event_id = a.event_id and e.owner_token = @token and e.status = 'SENDING'`

// freeHeld lets the rows go that waited for the ones just sent. It must be a statement of its own after settleSent: it
// then sees holds that were committed while settleSent waited for the row. Mostly nothing is held, which one look tells.
const freeHeld = `
update t_outbox_event set held_by = null, updated_at = now()
where held_by = any(@ids::text[]) and exists (select from t_outbox_event where held_by is not null)`

// endClaim forgets a claim of which every row is settled. Forgotten earlier, rows would stay in SENDING for ever.
const endClaim = `
delete from t_outbox_claim where owner_token = @token`

// settle writes outcomes of one claim, and with the last of them ends it. fenced is the number of rows that were no longer
// ours; nothing was changed on them.
func (r *Relay) settle(ctx context.Context, token string, outcomes []outcome, last bool) (fenced int, err error) {
	var sent struct {
		ids        []string
		partitions []int32
		offsets    []int64
	}
	var rest struct {
		ids             []string
		statuses        []*string
		counted         []int32
		alone           []bool
		codes, messages []*string
	}
	for _, o := range outcomes {
		if o.answer.result == resultAccepted {
			sent.ids = append(sent.ids, o.row.eventID)
			sent.partitions = append(sent.partitions, o.answer.partition)
			sent.offsets = append(sent.offsets, o.answer.offset)
			continue
		}
		s := o.answer.settlement(o.row)
		rest.ids = append(rest.ids, o.row.eventID)
		rest.statuses = append(rest.statuses, optional(s.status))
		rest.counted = append(rest.counted, s.counted)
		rest.alone = append(rest.alone, s.alone)
		rest.codes = append(rest.codes, optional(s.code))
		rest.messages = append(rest.messages, optional(s.message))
	}
	settled := 0
	count := func(tag pgconn.CommandTag) error {
		settled += int(tag.RowsAffected())
		return nil
	}
	batch := &pgx.Batch{} // pgx runs a batch as one transaction
	if len(sent.ids) > 0 {
		batch.Queue(settleSent, pgx.StrictNamedArgs{
			"ids": sent.ids, "partitions": sent.partitions, "offsets": sent.offsets, "token": token,
		}).Exec(count)
	}
	if len(rest.ids) > 0 {
		batch.Queue(settleRest, pgx.StrictNamedArgs{
			"ids": rest.ids, "statuses": rest.statuses, "counted": rest.counted, "alone": rest.alone,
			"codes": rest.codes, "messages": rest.messages, "token": token, "base": r.c.RetryBase, "cap": r.c.RetryCap,
		}).Exec(count)
	}
	if len(sent.ids) > 0 {
		batch.Queue(freeHeld, pgx.StrictNamedArgs{"ids": sent.ids})
	}
	if last {
		batch.Queue(endClaim, pgx.StrictNamedArgs{"token": token})
	}
	if err := r.db.SendBatch(ctx, batch).Close(); err != nil {
		return 0, fmt.Errorf("settling outbox rows: %w", err)
	}
	return len(outcomes) - settled, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
