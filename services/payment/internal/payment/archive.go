package payment

import (
	"context"
	"os"
	"time"

	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/outbox"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/telemetry"
)

// Archive is the subcommand `payment archive`: it moves sent outbox rows that nobody can need where they are into the
// archive, and ends. Run it from a timer, as the owner of the tables, for it makes a partition for each month; killed at
// any point, the next run goes on.
func Archive(ctx context.Context, env service.Env) error {
	cfg := struct {
		DatabaseURL string        `env:"DATABASE_URL,required,notEmpty"`
		LogLevel    string        `env:"LOG_LEVEL" envDefault:"info"`
		After       time.Duration `env:"ARCHIVE_AFTER" envDefault:"336h"`  // sent rows younger than this stay
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
	return err
}
