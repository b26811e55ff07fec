package design

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/outbox"
	"example.com/paycast/shared/postgres"
)

func ours() Design {
	return Design{
		Name: "ours", Label: "paycast",
		Backlog: "ours", Fill: fillOurs, Append: newOurAppender, Run: runOurs,
		Done: `select not exists (select from t_outbox_event where sent_at is null and not skipped)`,
	}
}

func fillOurs(ctx context.Context, databaseURL string, rows Rows) error {
	if err := postgres.Migrate(ctx, databaseURL, outbox.Migrations); err != nil {
		return err
	}
	columns := []string{"event_id", "aggregate_type", "aggregate_id", "aggregate_version", "event_type", "event_version",
		"destination", "message_key", "payload", "headers", "created_at", "next_retry_at"}
	return load(ctx, databaseURL, "t_outbox_event", columns, rows, func(e event.Event) []any {
		return []any{e.ID, e.AggregateType, e.AggregateID, e.AggregateVersion, e.Type, e.Version,
			Topic, e.AggregateID, string(e.Payload), lines(e), e.Time, e.Time}
	})
}

// load copies the backlog into a table and leaves it as a server would that has had time for its housekeeping.
func load(ctx context.Context, databaseURL, table string, columns []string, rows Rows, row func(event.Event) []any) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromSlice(rows.N, func(i int) ([]any, error) {
		return row(rows.Event(i)), nil
	}))
	if err != nil {
		return fmt.Errorf("filling %s: %w", table, err)
	}
	_, err = conn.Exec(ctx, "vacuum analyze "+pgx.Identifier{table}.Sanitize())
	return err
}

func runOurs(ctx context.Context, t Target) error {
	debug.SetGCPercent(outbox.GCPercent) // as the payment service's relay does
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	pub, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: t.Brokers, ClientID: "relay", Log: log})
	if err != nil {
		return err
	}
	defer func() { _ = pub.Close() }()
	relay, err := outbox.NewRelay(outbox.Config{DatabaseURL: t.DatabaseURL, Publisher: pub, Log: log, Poll: t.Poll})
	if err != nil {
		return err
	}
	return relay.Run(ctx)
}

type ourAppender struct {
	db    *gorm.DB
	waker *outbox.Waker
	stop  context.CancelFunc
}

func newOurAppender(ctx context.Context, databaseURL string, wake bool) (Appender, error) {
	db, err := postgres.Open(ctx, databaseURL, "bench")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	w := outbox.NewWaker(databaseURL, slog.Default())
	if wake {
		go func() { _ = w.Run(ctx) }() // it ends with ctx, and without it the relay polls
	}
	return &ourAppender{db, w, stop}, nil
}

func (a *ourAppender) Append(ctx context.Context, e event.Event) error {
	err := postgres.Transaction(ctx, a.db, func(tx *gorm.DB) error { return outbox.Append(ctx, tx, e) })
	a.waker.Wake()
	return err
}

func (a *ourAppender) Close() {
	a.stop()
	postgres.Close(a.db)
}
