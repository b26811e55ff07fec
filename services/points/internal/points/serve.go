// Package points turns payments into points. A payment credits its customer once; a paid order that is cancelled takes
// the same points back once. Each effect is a ledger entry in the transaction of the consume log.
//
//	serve.go    the process, from configuration to shutdown     handler.go  what each event means
//	account.go  the ledger and the balance                      cancel.go   what a cancellation takes back
//	api.go      what customers may see                          currency.go how many points an amount is
//	schema.go   the tables                                      agree.go    what reconciliation may see
package points

import (
	"context"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
)

// Group is the consumer group's name, in Kafka and in the consume log. Under a new name all of history is handled again.
const Group = "points"

type config struct {
	service.Base
	consumer.Settings
	DatabaseURL string `env:"DATABASE_URL,required,notEmpty"`
	HTTPAddr    string `env:"HTTP_ADDR"`
}

// Serve is the subcommand `points serve`: it consumes events and answers the API until ctx ends.
func Serve(ctx context.Context, env service.Env) error {
	cfg := config{HTTPAddr: "127.0.0.1:8082", Base: service.Base{OpsAddr: "127.0.0.1:9082"}}
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	p, err := service.Start(ctx, Group, cfg.Base)
	if err != nil {
		return err
	}
	db, err := postgres.Open(ctx, cfg.DatabaseURL, Group, postgres.WithTracer(p.Tracer))
	if err != nil {
		return err
	}
	p.Close(func() { postgres.Close(db) })
	guard := consumer.NewGuard(p.Metrics, Group, gaps)
	err = consumer.Run(p, consumer.Config{
		Settings: cfg.Settings, Group: Group, DB: db, Effects: effects(db), Faults: faults(db),
	}, consumer.InTransaction(guard.Before(Handle)))
	if err != nil {
		return err
	}
	if err := p.Serve("api", cfg.HTTPAddr, routes(db, p.Log)); err != nil {
		return err
	}
	return p.Wait()
}
