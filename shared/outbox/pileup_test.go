package outbox

import (
	"context"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
)

// pileUp makes the table that a relay fears: many sent rows, dead versions that vacuum may not remove because a
// forgotten reader holds its snapshot, and a writer that has appended an event and does not commit.
type pileUp struct {
	*stage
	late event.Event
	slow *pgx.Conn // the writer
}

const pileUpDue = 600

func (s *stage) pileUp(sent, dead int) *pileUp {
	s.t.Helper()
	s.exec("alter table t_outbox_event set (autovacuum_enabled = off)")
	s.fill("due", pileUpDue, 60)
	p := &pileUp{stage: s, late: created("O-late", 1), slow: s.connect()}
	reader := s.connect()
	s.must(reader, "begin isolation level repeatable read; select 1 from t_outbox_event limit 1")
	s.exec(`insert into t_outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
	          destination, message_key, payload, headers, created_at, next_retry_at, status, sent_at, broker_partition, broker_offset)
	        select 'sent-' || i, 'Order', 'sent-' || i, 1, 'OrderCreated', 1, 'order-events', 'sent-' || i, repeat('x', 200), '',
	          now() - interval '1 hour', now() - interval '1 hour', 'SENT', now(), 1, i
	        from generate_series(1, $1::bigint) i`, sent-dead/2)
	// Each row that is claimed and sent leaves two versions, at the very front of the index that claims read.
	s.fill("dead", dead/2, dead/20)
	s.exec("update t_outbox_event set created_at = now() - interval '1 hour', next_retry_at = now() - interval '1 hour' where message_key like 'dead-%'")
	s.exec("update t_outbox_event set status = 'SENDING', owner_token = 'x', lease_until = now() + interval '1 hour' where message_key like 'dead-%'")
	s.exec(`update t_outbox_event set status = 'SENT', owner_token = null, lease_until = null, sent_at = now(), broker_partition = 1, broker_offset = 1
	        where message_key like 'dead-%'`)
	s.exec("analyze t_outbox_event")
	s.must(p.slow, "begin")
	s.must(p.slow, `insert into t_outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
	                  destination, message_key, payload, headers) values ($1, 'Order', 'O-late', 1, 'OrderCreated', 1, 'order-events', 'O-late', '{}', $2)`,
		p.late.ID, "ce_id: "+p.late.ID+"\nce_aggregateversion: 1\n")
	require.GreaterOrEqual(s.t, s.unremovable(), dead, "the reader keeps vacuum from removing them")
	return p
}

// connect is one more session, which the end of the test closes.
func (s *stage) connect(options ...func(*pgx.ConnConfig)) *pgx.Conn {
	s.t.Helper()
	cfg, err := pgx.ParseConfig(s.url)
	require.NoError(s.t, err)
	for _, o := range options {
		o(cfg)
	}
	conn, err := pgx.ConnectConfig(s.t.Context(), cfg)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (s *stage) must(conn *pgx.Conn, sql string, args ...any) {
	s.t.Helper()
	_, err := conn.Exec(s.t.Context(), sql, args...)
	require.NoError(s.t, err)
}

var notYet = regexp.MustCompile(`(\d+) are dead but not yet removable`)

// unremovable vacuums and returns how many dead versions it had to leave.
func (s *stage) unremovable() (n int) {
	s.t.Helper()
	conn := s.connect(func(c *pgx.ConnConfig) {
		c.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) {
			if found := notYet.FindStringSubmatch(notice.Message); found != nil {
				left, err := strconv.Atoi(found[1])
				n = max(n, left)
				require.NoError(s.t, err)
			}
		}
	})
	s.must(conn, "vacuum (verbose) t_outbox_event")
	return n
}

// claimCost is the number of pages that one claim of up to n rows reads. It claims them, under a lease that outlives the test.
func (s *stage) claimCost(r *Relay, from time.Time, n int) (pages int64) {
	s.t.Helper()
	rows, err := r.db.Query(s.t.Context(), "explain (analyze, buffers, format json) "+claimRows, pgx.QueryExecModeExec, pgx.NamedArgs{
		"destination": event.Topic, "alone": false, "from": from, "batch": n, "most": n, "bytes": claimBytes, "token": r.c.rule().Begin("x").Token, "lease": time.Hour,
	})
	require.NoError(s.t, err)
	plan, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[[]struct {
		Plan struct {
			Hit  int64 `json:"Shared Hit Blocks"`
			Read int64 `json:"Shared Read Blocks"`
		}
	}])
	require.NoError(s.t, err)
	return plan[0].Plan.Hit + plan[0].Plan.Read
}

// requireNothingSkipped runs the relay until all that is committed has been sent, and then commits the late event.
func (p *pileUp) requireNothingSkipped() {
	p.t.Helper()
	p.run()
	p.eventually(0, "status <> 'SENT'")
	p.must(p.slow, "commit")
	p.eventually(1, "status = 'SENT' and event_id = $1", p.late.ID)
	p.requireOrdered(pileUpDue + 1)
	require.Zero(p.t, p.count("status <> 'SENT'"))
}

func TestPileUpBehindAForgottenReaderSkipsNothingAndCostsAClaimNoMoreThanItsDeadRows(t *testing.T) {
	t.Parallel()
	const sent, dead = 20_000, 2_400
	fresh, piled := setup(t), setup(t)
	fresh.fill("due", pileUpDue, 60)
	fresh.exec("analyze t_outbox_event")
	p := piled.pileUp(sent, dead)
	var before lane
	r := piled.relay()
	pages := map[string]int64{
		"fresh": fresh.claimCost(fresh.relay(), before.from, 100),
		"piled": piled.claimCost(r, before.from, 100),
	}
	// Where a claim begins after the first one of a drain: behind what was sent.
	var head time.Time
	require.NoError(t, piled.sql.QueryRow(t.Context(), "select min(next_retry_at) from t_outbox_event where status = 'PENDING'").Scan(&head))
	pages["piled, going on"] = piled.claimCost(r, head, 100)
	t.Log(pages)
	require.Less(t, pages["piled"], pages["fresh"]+dead/4, "it reads the pages of the dead versions once, and none of the sent rows")
	require.Less(t, pages["piled, going on"], 2*pages["fresh"], "it begins behind the dead versions")
	piled.exec("update t_outbox_event set status = 'PENDING', owner_token = null, lease_until = null where status = 'SENDING'")
	p.requireNothingSkipped()
}
