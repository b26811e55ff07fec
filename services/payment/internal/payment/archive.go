package payment

import (
	"context"
	"os"
	"time"

	"example.com/paycast/shared/archive"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/outbox"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/telemetry"
)

// receipts are final when they are written. They answer a repetition byte for byte, and providers repeat for days and
// not for weeks; the order itself refuses a second payment for ever.
var receipts = archive.Rows{
	From: "t_callback_receipt", To: "t_callback_receipt_archive", Key: "webhook_id", Scope: "true",
	Columns: "webhook_id, body_hash, event_type, order_no, verdict, answer, received_at",
	Final:   "received_at < now() - make_interval(secs => @window)",
}

// Archive is the subcommand `payment archive`: it moves sent outbox rows and callback receipts that nobody can need where they
// are into their archives, and ends. Run it from a timer, as the owner of the tables, for it makes a partition for each month; killed at
// any point, the next run goes on.
func Archive(ctx context.Context, env service.Env) error {
	cfg := struct {
		DatabaseURL string        `env:"DATABASE_URL,required,notEmpty"`
		LogLevel    string        `env:"LOG_LEVEL" envDefault:"info"`
		After       time.Duration `env:"ARCHIVE_AFTER" envDefault:"336h"`  // rows younger than this stay
		Horizon     time.Duration `env:"REPLAY_HORIZON" envDefault:"168h"` // how far back a replay may reach
	}{}
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	keep := outbox.Retention{Window: cfg.After, Kafka: kafka.Retention, Replay: cfg.Horizon}
	if err := keep.Validate(); err != nil {
		return &service.ConfigError{Err: err}
	}
	log, err := telemetry.Logger(os.Stderr, "payment", cfg.LogLevel)
	if err != nil {
		return &service.ConfigError{Err: err}
	}
	db, err := postgres.Open(ctx, cfg.DatabaseURL, "payment-archive", postgres.WithPool(2))
	if err != nil {
		return err
	}
	defer postgres.Close(db)
	moved, err := outbox.Archive(ctx, db, keep)
	log.InfoContext(ctx, "outbox rows archived", "rows", moved, "older_than", cfg.After.String())
	if err != nil {
		return err
	}
	moved, err = archive.Move(ctx, db, keep, receipts)
	log.InfoContext(ctx, "callback receipts archived", "rows", moved, "older_than", cfg.After.String())
	return err
}
