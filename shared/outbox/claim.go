package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"example.com/paycast/shared/lease"
)

// takeTurns makes claims of one destination wait for each other, also those of other relays: two at a time would read
// the same candidates, and one of them in vain. It is held until the claim's commit, which follows without a word from the
// relay; so one that stops in the middle keeps nobody waiting.
const takeTurns = `
select pg_advisory_xact_lock(hashtext('t_outbox_claim'), hashtext(@destination))`

// row is one claimed event, as much of it as a send needs.
type row struct {
	eventID, eventType, destination, key string
	version                              int64
	payload                              []byte
	headers                              string
	alone                                bool
	age                                  time.Duration // since its commit, by the database's clock, when it was claimed
}

// selectCandidates is a window on the rows that are due: the head of the claim and of the hold below. Nothing is locked yet,
// because a relay beside others finds many rows that do not fit.
//
// The head of the index is full of rows that were sent since the last vacuum, or are being sent, and every walk from its
// very start reads them all. So a claim starts where the one before it did (from). Rows that come in before that point,
// after a late commit or given back, wait for the next look from the start, a poll at most.
const selectCandidates = `
cand as materialized (
  select ctid, event_id, message_key, aggregate_version, next_retry_at, octet_length(payload) as bytes
  from t_outbox_event
  where status in ('PENDING', 'RETRY') and sent_at is null and held_by is null
    and destination = @destination and alone = @alone and next_retry_at between @from and now()
  order by next_retry_at, created_at
  limit @batch`

// claimRows takes candidates that no earlier unsent row of their key stands in front of, unless that row is taken as
// well. SKIP LOCKED alone would let one relay send an event while another still has the one before it. So the queue of
// each key is read from its start, and a row is wanted while everything up to it is a candidate ("clear"); the wanted are
// locked, and a row is kept while everything up to it is locked by us, and is as it was read ("kept").
//
//   - Of a queue only as many rows are read as there are candidates of its key: no more can be wanted. A long tail costs
//     nothing.
//   - The queue is read in the statement's snapshot. A row that is missing there was committed later, and then so were
//     all later rows of its key, because an aggregate's versions are committed in order.
//   - A ctid names one version of a row. One that changed since the snapshot has another, is not kept, and nor is what
//     stands behind it. Rows that another relay, or anybody, is working on are skipped and not waited for.
//   - Few rows are taken from a full window, and each key's from its first on. A window as narrow as the claim could show
//     the same second row of a key again and again, while its first is due later and never looked at.
//   - A claim ends with the row that fills its share of memory, the longest waiting keys first: large payloads must neither
//     swell the relay nor take longer to read than the lease lasts.
//   - "= any(array(...))": with "in (select ... limit n)" the planner may run the sub-select again and claim more than n.
//   - "materialized" keeps the planner at one index probe per key. Left free, it joins the candidates once for each.
//   - The update changes no column that an index knows. What it has claimed is noted once, as a row of t_outbox_claim, where
//     a takeover looks for it.
const claimRows = `with` + selectCandidates + judgeAndClaim

// claimUnlocked is for a window that others have locked from end to end, with psql for example: it looks past what they have.
const claimUnlocked = `with` + selectCandidates + `
  for update skip locked` + judgeAndClaim

const judgeAndClaim = `
),
queue as materialized (
  select u.ctid, u.message_key, u.aggregate_version
  from (select message_key, count(*) as n from cand group by message_key) k
  cross join lateral (
    select e.ctid, e.message_key, e.aggregate_version
    from t_outbox_event e
    where e.destination = @destination and e.message_key = k.message_key and e.sent_at is null and not e.skipped
    order by e.aggregate_version
    limit k.n
  ) u
),
judged as (
  select q.ctid, q.message_key, q.aggregate_version, c.bytes,
         bool_and(c.ctid is not null) over (partition by q.message_key order by q.aggregate_version) as clear,
         min(c.next_retry_at) over (partition by q.message_key) as since
  from queue q left join cand c on c.ctid = q.ctid
),
sized as (
  select ctid, since, message_key, aggregate_version,
         sum(bytes) over (order by since, message_key, aggregate_version) - bytes as bytes_before
  from judged where clear
),
wanted as materialized (
  select ctid, message_key, aggregate_version
  from sized where bytes_before < @bytes order by since, message_key, aggregate_version limit @most
),
locked as materialized (
  select ctid
  from t_outbox_event
  where ctid = any(array(select ctid from wanted)) and status in ('PENDING', 'RETRY') and held_by is null
  for update skip locked
),
kept as (
  select ctid, bool_and(l.ctid is not null) over (partition by message_key order by aggregate_version) as kept
  from wanted left join locked l using (ctid)
),
claimed as (
  update t_outbox_event
  set status = 'SENDING', owner_token = @token, lease_until = now() + @lease, updated_at = now()
  where ctid = any(array(select ctid from kept where kept))
  returning ctid, event_id
),
noted as (
  insert into t_outbox_claim (owner_token, lease_until, event_ids)
  select @token, now() + @lease, array_agg(event_id) from claimed having count(*) > 0
)
select count(*) as due, count(*) - (select count(*) from sized) as waiting, coalesce(min(next_retry_at), @from) as head,
       array(select ctid from claimed) as places, array(select event_id from claimed) as ids
from cand`

// readClaimed reads what a claim has taken. The claim does not return the rows itself: it would stay uncommitted, and all it
// has locked with it, until a slow relay has read them. Meanwhile the next claim is on its way. Rows are read where the claim
// has left them; by their ids only if one is not there any more.
const readClaimed = `
select event_id, event_type, message_key, aggregate_version, payload, headers, now() - created_at as age
from t_outbox_event
where owner_token = @token and status = 'SENDING' and `

// claimBytes is the payload that one claim may hold, and a row more.
const claimBytes = 4 << 20

// taken is what a claim's statement tells.
type taken struct {
	due, waiting int // rows it saw, and how many of them it left because an earlier row of their key is in other hands
	places       []pgtype.TID
	ids          []string
}

// claim takes up to n rows of one lane, in order per key, moves the lane's start to the first due row it saw, and notes
// whether others are left.
func (r *Relay) claim(ctx context.Context, hold lease.Hold, l *lane, n int) (got taken, err error) {
	start := time.Now()
	got, err = r.runClaim(ctx, claimRows, hold, l, n)
	if err == nil && len(got.ids) == 0 && got.waiting == 0 && got.due == r.c.Batch {
		got, err = r.runClaim(ctx, claimUnlocked, hold, l, n)
	}
	if err != nil {
		return taken{}, fmt.Errorf("claiming outbox rows: %w", err)
	}
	l.more = got.due > len(got.ids) || got.due == r.c.Batch
	r.m.claim.Observe(time.Since(start).Seconds())
	r.m.claimed.Observe(float64(len(got.ids)))
	return got, nil
}

func (r *Relay) runClaim(ctx context.Context, sql string, hold lease.Hold, l *lane, n int) (got taken, err error) {
	batch := &pgx.Batch{} // pgx runs a batch as one transaction
	batch.Queue(takeTurns, pgx.StrictNamedArgs{"destination": l.destination})
	batch.Queue(sql, pgx.StrictNamedArgs{
		"destination": l.destination, "alone": l.alone, "from": l.from, "batch": r.c.Batch, "most": n, "bytes": claimBytes,
		"token": hold.Token, "lease": r.c.Lease,
	}).QueryRow(func(row pgx.Row) error { return row.Scan(&got.due, &got.waiting, &l.from, &got.places, &got.ids) })
	return got, r.db.SendBatch(ctx, batch).Close()
}

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
	found, err := r.db.Query(ctx, readClaimed+where, pgx.StrictNamedArgs{"token": hold.Token, "which": which})
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

// hold looks at the same candidates as a claim does and returns how many are held now.
func (r *Relay) hold(ctx context.Context, l lane) (int, error) {
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
