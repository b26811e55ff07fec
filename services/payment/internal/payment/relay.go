package payment

import (
	"context"
	"runtime/debug"
	"time"

	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/outbox"
	"example.com/paycast/shared/service"
)

type relayConfig struct {
	service.Base
	DatabaseURL string `env:"DATABASE_URL,required,notEmpty"`
	Brokers     string `env:"KAFKA_BROKERS,required,notEmpty"`

	// Zero keeps the outbox's defaults. Short times are for tests and demonstrations: a lease must outlast a send.
	Lease    time.Duration `env:"OUTBOX_LEASE"`
	Deadline time.Duration `env:"OUTBOX_SEND_DEADLINE"`
	Margin   time.Duration `env:"OUTBOX_SETTLE_MARGIN"`
	Poll     time.Duration `env:"OUTBOX_POLL"`
	RetryCap time.Duration `env:"OUTBOX_RETRY_CAP"`

	Archiving // with ARCHIVE_AFTER set, the relay runs the archiver too
}

// Relay is the subcommand `payment relay`: it publishes what API committed. It is a process of its own, so that the
// broker's trouble is never the callback's, and any number of them may run.
func Relay(ctx context.Context, env service.Env) error {
	cfg := relayConfig{Base: service.Base{OpsAddr: "127.0.0.1:9085"}}
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	if cfg.After != 0 {
		if err := cfg.check(); err != nil {
			return err
		}
	}
	debug.SetGCPercent(outbox.GCPercent)
	p, err := service.Start(ctx, "relay", cfg.Base)
	if err != nil {
		return err
	}
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: cfg.Brokers, ClientID: "payment-relay", Log: p.Log})
	if err != nil {
		return err
	}
	p.Close(func() {
		if err := publisher.Close(); err != nil {
			p.Log.Warn("closing the publisher", "error", err)
		}
	})
	relay, err := outbox.NewRelay(outbox.Config{
		DatabaseURL: cfg.DatabaseURL, Publisher: publisher, Metrics: p.Metrics, Log: p.Log, Tracer: p.Tracer,
		Lease: cfg.Lease, Deadline: cfg.Deadline, Margin: cfg.Margin, Poll: cfg.Poll, RetryCap: cfg.RetryCap,
	})
	if err != nil {
		return &service.ConfigError{Err: err}
	}
	p.Ready("outbox", relay.Ready)
	p.Settings(publisher.Settings)
	p.Settings(relay.Settings)
	p.Settings(cfg.windows)
	p.Go("relay", relay.Run)
	if cfg.After != 0 {
		p.Go("archive", cfg.archiver(cfg.DatabaseURL, p.Log))
	}
	return p.Wait()
}
