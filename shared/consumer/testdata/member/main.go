// Command member is a consumer as a process of its own, for the tests that let one die. Its subcommand says how it takes
// its messages, and an order whose number begins with "deadly" ends it.
package main

import (
	"context"
	"os"
	"strings"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/batch"
	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
)

func main() {
	h := consumer.InTransaction(handle)
	service.Main("member",
		service.Command{Name: "each", Run: member(func(p *service.Process, cfg consumer.Config) error { return consumer.Run(p, cfg, h) })},
		service.Command{Name: "archives", Run: member(func(p *service.Process, cfg consumer.Config) error {
			cfg.ArchiveAfter, cfg.SweepEvery = 30*24*time.Hour, 100*time.Millisecond
			return consumer.Run(p, cfg, h)
		})},
		service.Command{Name: "batches", Run: member(func(p *service.Process, cfg consumer.Config) error {
			return batch.Run(p, batch.Config{Config: cfg, Size: 8}, h)
		})},
	)
}

func handle(_ context.Context, tx *gorm.DB, e event.Event) error {
	if strings.HasPrefix(e.AggregateID, "deadly") {
		os.Exit(3)
	}
	return tx.Exec("INSERT INTO t_effect VALUES (?, ?)", e.AggregateID, e.Type).Error
}

func member(run func(p *service.Process, cfg consumer.Config) error) func(ctx context.Context, env service.Env) error {
	return func(ctx context.Context, env service.Env) error {
		var cfg struct {
			service.Base
			consumer.Settings
			DatabaseURL string `env:"DATABASE_URL,required,notEmpty"`
		}
		if err := env.Parse(&cfg); err != nil {
			return err
		}
		p, err := service.Start(ctx, "member", cfg.Base)
		if err != nil {
			return err
		}
		db, err := postgres.Open(ctx, cfg.DatabaseURL, "member")
		if err != nil {
			return err
		}
		p.Close(func() { postgres.Close(db) })
		if err := run(p, consumer.Config{Settings: cfg.Settings, Group: "g", DB: db}); err != nil {
			return err
		}
		return p.Wait()
	}
}
