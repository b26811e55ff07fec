package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"example.com/paycast/shared/lease"
)

// takeTurns makes claims of one destination wait for each other, also those of other relays: two at a time would read
// the same candidates, and one of them in vain. The advisory lock is held until the claim's commit, which follows without a
// word from the relay; so one that stops in the middle keeps nobody waiting.
const takeTurns = `
select pg_advisory_xact_lock(hashtext('t_outbox_claim'), hashtext(@destination))`

// row is one claimed event, as much of it as a send needs.
type row struct {
	eventID, eventType, destination, key string
	version                              int64
	payload                              []byte
	headers                              string
	alone                                bool
	age                                  time.Duration // since its transaction began, when it was claimed; by the database's clock
}

// selectCandidates is a window on the rows that are due: how the claim begins, and the hold in hold.go. Nothing is locked
// yet, because a relay beside others finds many rows that do not fit.
//
// The first part of the index is full of rows that were sent since the last vacuum, or are being sent, and every walk from its
// very start reads them all. So a claim starts where the one before it did (from). Rows that come in before that point,
// after a late commit or given back, wait for the next look from the start, a poll at most.
//
// The window has all its rows even when one is wanted. A window of one could show the second row of a key again and again,
// while the first is due later and never looked at.
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
// each key is read from its start: a row is wanted while everything up to it is a candidate, and kept while everything up
// to it could be locked as it was read. Of versions 1, 2 and 3, if somebody works on the row of 2, all are wanted, 1 and 3
// are locked, and 1 is kept.
//
// "= any(array(...))": with "in (select ... limit n)" the planner may run the sub-select again and claim more than n.
// "materialized" keeps the planner at one index probe per key; left free, it joins the candidates once for each.
const claimRows = `with` + selectCandidates + judgeAndClaim

// claimUnlocked is for a window that others have locked from end to end, with psql for example: it looks past what they have.
const claimUnlocked = `with` + selectCandidates + `
  for update skip locked` + judgeAndClaim

const judgeAndClaim = `
),
-- Of a queue only as many rows are read as there are candidates of its key: no more can be wanted, and a long tail costs
-- nothing. A row that this snapshot does not show was committed later, and then so were all later rows of its key, because
-- versions of an aggregate are committed in order.
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
-- The longest waiting keys first, up to the row that fills the claim: large payloads must neither swell the relay nor take
-- longer to read than the lease lasts.
sized as (
  select ctid, since, message_key, aggregate_version,
         sum(bytes) over (order by since, message_key, aggregate_version) - bytes as bytes_before
  from judged where clear
),
wanted as materialized (
  select ctid, message_key, aggregate_version
  from sized where bytes_before < @bytes order by since, message_key, aggregate_version limit @most
),
-- A ctid names one version of a row: one that has changed since the snapshot is not found. One that somebody works on is
-- not waited for.
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
-- No index knows what is changed here, so that no index entry is written.
claimed as (
  update t_outbox_event
  set status = 'SENDING', owner_token = @token, lease_until = now() + @lease, updated_at = now()
  where ctid = any(array(select ctid from kept where kept))
  returning ctid, event_id
),
-- Where a takeover looks for what was claimed.
noted as (
  insert into t_outbox_claim (owner_token, lease_until, event_ids)
  select @token, now() + @lease, array_agg(event_id) from claimed having count(*) > 0
)
select count(*) as due, count(*) - (select count(*) from sized) as waiting, coalesce(min(next_retry_at), @from) as head,
       array(select ctid from claimed) as places, array(select event_id from claimed) as ids
from cand`

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
	l.left = got.due > len(got.ids) || got.due == r.c.Batch
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
