package design

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"example.com/paycast/shared/event"
)

// chunks is our sketch of the shape that the best public outboxes for Go have: claim a batch with SKIP LOCKED, cut it
// into contiguous chunks, one worker and one write to Kafka for each, mark the batch, claim the next. Batch and number
// of workers are the usual defaults. Its table is as lean as it can be, and it does nothing about failures: the sketch
// is faster than a real one. Rows of one key can lie in several chunks, and those are under way at the same time.
func chunks() Design {
	return Design{
		Name: "chunks", Label: "claimed batch, 8 chunks",
		Fill: fillChunks, Run: runChunks,
		Done: `select not exists (select from messages where status <> 'sent')`,
	}
}

const (
	chunksBatch   = 200
	chunksWorkers = 8
)

const chunksTable = `
create table messages (
    id          bigint      generated always as identity primary key,
    message_key text        not null,
    payload     text        not null,
    headers     text        not null,
    status      text        not null default 'pending',
    token       text,
    lease_until timestamptz,
    created_at  timestamptz not null
);
create index on messages (id) where status <> 'sent';`

const chunksClaim = `
update messages set status = 'claimed', token = $1, lease_until = now() + interval '2 minutes'
where id = any(array(
  select id from messages
  where status = 'pending' or status = 'claimed' and lease_until < now()
  order by id limit $2 for update skip locked))
returning id, message_key, payload, headers`

const chunksMark = `
update messages set status = 'sent', token = null, lease_until = null
where id = any($1) and token = $2 and status = 'claimed'`

func fillChunks(ctx context.Context, databaseURL string, rows Rows) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	// Claimed and sent rows change the index each time; the table is vacuumed as eagerly as ours.
	if _, err := conn.Exec(ctx, chunksTable+`alter table messages set (
	    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0)`); err != nil {
		return err
	}
	return load(ctx, databaseURL, "messages", []string{"message_key", "payload", "headers", "created_at"}, rows,
		func(e event.Event) []any { return []any{e.AggregateID, string(e.Payload), lines(e), e.Time} })
}

type chunksRow struct {
	ID                    int64
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
		found, err := pool.Query(ctx, chunksClaim, token, chunksBatch)
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
		ids := make([]int64, 0, len(rows))
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
