package design

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"example.com/paycast/shared/event"
)

// chunks is our sketch of the shape that the best public outbox for Go has: claim a batch with SKIP LOCKED, cut it into
// contiguous chunks, one worker and one write to Kafka for each, mark the batch, claim the next. Batch, number of workers
// and indexes are the usual ones of that shape. The sketch does nothing about failures, metrics or tracing, so it is
// faster than a real one. Rows of one key can lie in several chunks, and those are under way at the same time.
func chunks() Design {
	return Design{
		Name: "chunks", Label: "claimed batch, 8 chunks",
		Backlog: "chunks", Fill: fillChunks, Run: runChunks,
		Done: `select not exists (select from messages where status in (0, 1))`,
	}
}

const (
	chunksBatch   = 200
	chunksWorkers = 8
)

// The states are 0 waiting, 1 claimed, 2 sent. The table is vacuumed as eagerly as ours.
const chunksTable = `
create table messages (
    id           uuid        not null primary key,
    topic        text        not null,
    message_key  text        not null,
    payload      text        not null,
    headers      text        not null,
    status       smallint    not null default 0 check (status between 0 and 3),
    attempts     int         not null default 0 check (attempts >= 0),
    available_at timestamptz not null,
    token        uuid,
    lease_until  timestamptz,
    created_at   timestamptz not null,
    sent_at      timestamptz,
    check ((status = 1) = (token is not null) and (token is null) = (lease_until is null))
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index on messages (topic, available_at, id) where status = 0;
create index on messages (created_at) where status = 0;
create index on messages (lease_until) where status = 1;
create index on messages (sent_at) where status = 2;`

const chunksClaim = `
with due as (
  select id from messages
  where status = 0 and topic = $1 and available_at <= now()
  order by available_at, id
  limit $2
  for update skip locked
)
update messages m set status = 1, token = $3, lease_until = now() + interval '2 minutes'
from due where m.id = due.id
returning m.id, m.message_key, m.payload, m.headers`

const chunksMark = `
update messages set status = 2, sent_at = now(), token = null, lease_until = null
where id = any($1) and token = $2`

func fillChunks(ctx context.Context, databaseURL string, rows Rows) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, chunksTable); err != nil {
		return err
	}
	columns := []string{"id", "topic", "message_key", "payload", "headers", "available_at", "created_at"}
	return load(ctx, databaseURL, "messages", columns, rows, func(e event.Event) []any {
		return []any{uuid.MustParse(e.ID), Topic, e.AggregateID, string(e.Payload), lines(e), e.Time, e.Time}
	})
}

type chunksRow struct {
	ID                    pgtype.UUID
	Key, Payload, Headers string
}

func runChunks(ctx context.Context, t Target) error {
	producer, err := sarama.NewSyncProducer([]string{t.Brokers}, safeProducer())
	if err != nil {
		return err
	}
	defer func() { _ = producer.Close() }()
	pool, err := pgxpool.New(ctx, t.DatabaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	for ctx.Err() == nil {
		token := uuid.NewString()
		found, err := pool.Query(ctx, chunksClaim, Topic, chunksBatch, token)
		if err != nil {
			return err
		}
		rows, err := pgx.CollectRows(found, pgx.RowToStructByPos[chunksRow])
		if err != nil {
			return fmt.Errorf("claiming: %w", err)
		}
		if len(rows) == 0 {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		var sends errgroup.Group
		size := (len(rows) + chunksWorkers - 1) / chunksWorkers
		ids := make([]pgtype.UUID, 0, len(rows))
		for from := 0; from < len(rows); from += size {
			chunk := rows[from:min(from+size, len(rows))]
			for _, r := range chunk {
				ids = append(ids, r.ID)
			}
			sends.Go(func() error { return producer.SendMessages(produced(chunk)) })
		}
		if err := sends.Wait(); err != nil {
			return fmt.Errorf("sending: %w", err)
		}
		if _, err := pool.Exec(ctx, chunksMark, ids, token); err != nil {
			return fmt.Errorf("marking: %w", err)
		}
	}
	return nil
}

func produced(rows []chunksRow) []*sarama.ProducerMessage {
	out := make([]*sarama.ProducerMessage, len(rows))
	for i, r := range rows {
		out[i] = &sarama.ProducerMessage{Topic: Topic, Key: sarama.StringEncoder(r.Key), Value: sarama.StringEncoder(r.Payload)}
		for line := range strings.Lines(r.Headers) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			out[i].Headers = append(out[i].Headers, sarama.RecordHeader{Key: []byte(name), Value: []byte(value)})
		}
	}
	return out
}
