package world

import (
	"context"
	"errors"
	"os"
	"time"

	"example.com/paycast/deploy/world/load"
	"example.com/paycast/shared/service"
)

// Load makes orders until all are done or ctx ends. Progress goes to standard error, the journal to standard output.
func Load(ctx context.Context, env service.Env) error {
	cfg := struct {
		Payments
		Orders     int     `env:"LOAD_ORDERS"`
		PerSecond  float64 `env:"LOAD_RATE"`
		Parallel   int     `env:"LOAD_PARALLEL"`
		Duplicates int     `env:"LOAD_DUPLICATES"` // percent
	}{Payments: Payments{PaymentURL: defaultPaymentURL}, Orders: 100, PerSecond: 10, Parallel: 20, Duplicates: 10}
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	payer, err := cfg.provider()
	if err != nil {
		return err
	}
	defer payer.Close()
	c := load.Config{
		PaymentURL: cfg.PaymentURL, Provider: payer, Orders: cfg.Orders, PerSecond: cfg.PerSecond, Parallel: cfg.Parallel,
		DuplicatePercent: cfg.Duplicates, Progress: os.Stderr, ProgressEvery: 2 * time.Second,
	}
	if err := c.Validate(); err != nil {
		return &service.ConfigError{Err: err}
	}
	journal, err := load.Run(ctx, c)
	return errors.Join(err, journal.Write(os.Stdout))
}
