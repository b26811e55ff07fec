// Subject is a batch consumer as a process of its own, to be held to the conformance suite and to be killed: as "each"
// its handler is called for each event, as "all" it gets a batch at once.
package main

import (
	"context"

	"example.com/paycast/shared/batch"
	"example.com/paycast/shared/batch/internal/effect"
	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
)

const group = "g"

func main() {
	service.Main("subject",
		service.Command{Name: "each", Run: run(consumer.InTransaction(effect.Each))},
		service.Command{Name: "all", Run: run(consumer.Batched(effect.All))})
}

func run(h consumer.Handler) func(context.Context, service.Env) error {
	return func(ctx context.Context, env service.Env) error {
		var cfg struct {
			service.Base
			consumer.Settings
			DatabaseURL string `env:"DATABASE_URL,required,notEmpty"`
		}
		if err := env.Parse(&cfg); err != nil {
			return err
		}
		p, err := service.Start(ctx, group, cfg.Base)
		if err != nil {
			return err
		}
		db, err := postgres.Open(ctx, cfg.DatabaseURL, group)
		if err != nil {
			return err
		}
		p.Close(func() { postgres.Close(db) })
		// Small batches, so that a few events are many of them.
		c := batch.Config{Config: consumer.Config{Settings: cfg.Settings, Group: group, DB: db}, Size: 20}
		if err := batch.Run(p, c, h); err != nil {
			return err
		}
		return p.Wait()
	}
}
