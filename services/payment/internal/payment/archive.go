package payment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"example.com/paycast/shared/archive"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/outbox"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/settings"
	"example.com/paycast/shared/telemetry"
)

// receipts are final when they are written. They answer a repetition byte for byte, and providers repeat for days and
// not for weeks; the order itself refuses a second payment for ever.
var receipts = archive.Rows{
	From: "t_callback_receipt", To: "t_callback_receipt_archive", Key: "webhook_id", Scope: "true",
	Columns: "webhook_id, body_hash, event_type, order_no, verdict, answer, received_at",
	Final:   "received_at < now() - make_interval(secs => @window)",
}

// Archiving is what the subcommand and the relay's timer share.
type Archiving struct {
	After   time.Duration `env:"ARCHIVE_AFTER"`                    // rows younger than this stay
	Horizon time.Duration `env:"REPLAY_HORIZON" envDefault:"168h"` // how far back a replay may reach
}

func (c Archiving) keep() archive.Retention {
	return archive.Retention{Window: c.After, Kafka: kafka.Retention, Replay: c.Horizon}
}

func (c Archiving) check() error {
	if err := c.keep().Validate(); err != nil {
		return &service.ConfigError{Err: fmt.Errorf("ARCHIVE_AFTER: %w", err)}
	}
	return nil
}

// Archive is the subcommand `payment archive`: it moves sent outbox rows and callback receipts that nobody can need where they
// are into their archives, and ends. Killed at any point, the next run goes on.
func Archive(ctx context.Context, env service.Env) error {
	cfg := struct {
		Archiving
		DatabaseURL string `env:"DATABASE_URL,required,notEmpty"`
		LogLevel    string `env:"LOG_LEVEL" envDefault:"info"`
	}{Archiving: Archiving{After: 14 * 24 * time.Hour}}
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	if err := cfg.check(); err != nil {
		return err
	}
	log, err := telemetry.Logger(os.Stderr, "payment", cfg.LogLevel)
	if err != nil {
		return &service.ConfigError{Err: err}
	}
	return cfg.move(ctx, cfg.DatabaseURL, log)
}

func (c Archiving) move(ctx context.Context, url string, log *slog.Logger) error {
	db, err := postgres.Open(ctx, url, "payment-archive", postgres.WithPool(1))
	if err != nil {
		return err
	}
	defer postgres.Close(db)
	// One that fails does not keep the other.
	events, eventsErr := outbox.Archive(ctx, db, c.keep())
	log.InfoContext(ctx, "outbox rows archived", "rows", events, "older_than", c.After.String())
	moved, err := archive.Move(ctx, db, c.keep(), receipts)
	log.InfoContext(ctx, "callback receipts archived", "rows", moved, "older_than", c.After.String())
	return errors.Join(eventsErr, err)
}

// archiveEvery is the time between two runs of the relay's archiver.
const archiveEvery = time.Hour

// archiver runs at the start and then on a timer, until ctx ends. What fails is tried again the next time: rows that stay where
// they are do no harm. Several relays may do it at once.
func (c Archiving) archiver(url string, log *slog.Logger) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		again := time.NewTicker(archiveEvery)
		defer again.Stop()
		for {
			if err := c.move(ctx, url, log); err != nil && ctx.Err() == nil {
				log.WarnContext(ctx, "archiving failed; trying again later", "error", err)
			}
			select {
			case <-again.C:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// windows tells how long rows stay where they are, and asks for how long Kafka may bring one back.
func (c relayConfig) windows(_ context.Context, to *settings.Report) error {
	for _, of := range []string{"sent events", "callback receipts"} {
		to.Windows = append(to.Windows, settings.Window{Of: of, Keeps: settings.Duration(c.After)})
	}
	to.Horizon = settings.Duration(c.Horizon)
	to.Kafka = func(ctx context.Context) (settings.Kafka, error) { return kafka.Seen(ctx, c.Brokers, event.Topic) }
	return nil
}
