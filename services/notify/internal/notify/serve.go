package notify

import (
	"context"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
)

// Group is this consumer's name, in Kafka and in the consume log. A new name would send every message of history again.
const Group = "notify"

// Migrations are this service's tables and those of the consume log in its database.
var Migrations = []postgres.Set{inbox.Migrations, audit.Migrations, postgres.Files("notify", files)}

// Migrate is the subcommand `notify migrate`.
func Migrate(ctx context.Context, env service.Env) error {
	var cfg struct {
		DatabaseURL string `env:"DATABASE_URL,required,notEmpty"`
	}
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	return postgres.Migrate(ctx, cfg.DatabaseURL, Migrations...)
}

// Serve is the subcommand `notify serve`: the consumer and the API.
func Serve(ctx context.Context, env service.Env) error {
	cfg := struct {
		service.Base
		consumer.Settings
		DatabaseURL string `env:"DATABASE_URL,required,notEmpty"`
		HTTPAddr    string `env:"HTTP_ADDR"`
	}{Base: service.Base{OpsAddr: "127.0.0.1:9083"}, HTTPAddr: "127.0.0.1:8083"}
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	p, err := service.Start(ctx, "notify", cfg.Base)
	if err != nil {
		return err
	}
	db, err := postgres.Open(ctx, cfg.DatabaseURL, "notify", postgres.WithTracer(p.Tracer))
	if err != nil {
		return err
	}
	p.Close(func() { postgres.Close(db) })
	err = consumer.Run(p, consumer.Config{
		Settings: cfg.Settings, Group: Group, DB: db, Effects: effects(db), Faults: faults(db), ReachesPeople: true,
	}, consumer.InTransaction(handle))
	if err != nil {
		return err
	}
	p.Ops.Handle("GET /ops/commands", listCommands(db, p.Log, nil))
	if err := p.Serve("api", cfg.HTTPAddr, routes(db, p.Log)); err != nil {
		return err
	}
	return p.Wait()
}
