package payment

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/outbox"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/webhook"
)

// Migrations are this service's tables and those of the mechanisms in its database.
var Migrations = []postgres.Set{postgres.Files("payment", files), outbox.Migrations, audit.Migrations}

// Migrate is the subcommand `payment migrate`.
func Migrate(ctx context.Context, env service.Env) error {
	var cfg struct {
		DatabaseURL string `env:"DATABASE_URL,required,notEmpty"`
	}
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	return postgres.Migrate(ctx, cfg.DatabaseURL, Migrations...)
}

type apiConfig struct {
	service.Base
	DatabaseURL    string `env:"DATABASE_URL,required,notEmpty"`
	DatabasePool   int    `env:"DATABASE_POOL"`
	HTTPAddr       string `env:"HTTP_ADDR"`
	WebhookSecrets string `env:"WEBHOOK_SECRETS"`
	MerchantID     string `env:"MERCHANT_ID,required,notEmpty"`
	// For redeliveries only. Nothing that a customer or the provider asks for needs Kafka here.
	Brokers string `env:"KAFKA_BROKERS"`

	secrets webhook.Secrets
}

// Validate refuses to start what would only look as if it verified signatures.
func (c *apiConfig) Validate() error {
	var err error
	if c.secrets, err = webhook.ParseSecrets(c.WebhookSecrets); err != nil {
		err = fmt.Errorf("WEBHOOK_SECRETS: %w", err)
	}
	if strings.TrimSpace(c.MerchantID) == "" || c.DatabasePool < 1 {
		err = errors.Join(err, errors.New("MERCHANT_ID must not be blank and DATABASE_POOL must be at least 1"))
	}
	return err
}

// API is the subcommand `payment api`.
func API(ctx context.Context, env service.Env) error {
	cfg := apiConfig{Base: service.Base{OpsAddr: "127.0.0.1:9081"}, HTTPAddr: "127.0.0.1:8081", DatabasePool: 16}
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	p, err := service.Start(ctx, "payment", cfg.Base)
	if err != nil {
		return err
	}
	db, err := postgres.Open(ctx, cfg.DatabaseURL, "payment", postgres.WithPool(cfg.DatabasePool), postgres.WithTracer(p.Tracer))
	if err != nil {
		return err
	}
	p.Close(func() { postgres.Close(db) })
	p.Ready("postgres", func(ctx context.Context) error {
		// Not only a ping: without the tables every request would fail.
		return db.WithContext(ctx).Exec("select from t_order, t_outbox_event limit 0").Error
	})
	p.Settings(postgres.Settings(db))
	waker := outbox.NewWaker(cfg.DatabaseURL, p.Log)
	p.Go("waker", waker.Run)
	s := &server{
		db: db, secrets: cfg.secrets, merchantID: cfg.MerchantID, wake: waker.Wake,
		metrics: newMetrics(p.Metrics), log: p.Log,
	}
	s.mountOps(p.Ops)
	if err := mountRedelivery(p, db, cfg.Brokers); err != nil {
		return err
	}
	if err := p.Serve("api", cfg.HTTPAddr, s.routes()); err != nil {
		return err
	}
	return p.Wait()
}
