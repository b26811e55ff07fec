package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
)

type config struct {
	service.Base
	HTTPAddr    string            `env:"HTTP_ADDR"`
	DatabaseURL string            `env:"DATABASE_URL,required,notEmpty"`
	Brokers     string            `env:"KAFKA_BROKERS,required,notEmpty"`
	PaymentOps  string            `env:"PAYMENT_OPS_URL,required,notEmpty"`
	FactsURLs   map[string]string `env:"FACTS_URLS,required,notEmpty" envKeyValSeparator:"="` // group=URL,...
	LateAfter   time.Duration     `env:"LATE_AFTER"`                                          // how old an unfinished event may be before it is reported
}

func defaults() config {
	return config{Base: service.Base{OpsAddr: "127.0.0.1:9080"}, HTTPAddr: "127.0.0.1:8080", LateAfter: 5 * time.Minute}
}

// Validate reports everything that cannot work. The token is not optional: without it nobody can be asked.
func (c *config) Validate() error {
	bad := []error{service.CheckSecret("OPS_TOKEN", c.OpsToken)}
	if c.LateAfter <= 0 {
		bad = append(bad, errors.New("LATE_AFTER must be more than 0"))
	}
	addresses := map[string]string{"PAYMENT_OPS_URL": c.PaymentOps}
	for group, address := range c.FactsURLs {
		addresses["FACTS_URLS, group "+group] = address
	}
	for name, address := range addresses {
		if u, err := url.Parse(address); err != nil || u.Scheme == "" || u.Host == "" {
			bad = append(bad, fmt.Errorf("%s: not an address such as http://127.0.0.1:9082", name))
		}
	}
	return errors.Join(bad...)
}

func (c *config) reconciler(store Store) Reconciler {
	parts := Parts{
		Source:  ops.Client{BaseURL: c.PaymentOps, Token: c.OpsToken},
		Groups:  map[string]ops.Client{},
		Brokers: c.Brokers,
	}
	for group, address := range c.FactsURLs {
		parts.Groups[group] = ops.Client{BaseURL: address, Token: c.OpsToken}
	}
	return Reconciler{Parts: parts, Store: store, Late: c.LateAfter}
}

// Serve answers the API until ctx ends.
func Serve(ctx context.Context, env service.Env) error {
	cfg := defaults()
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	p, err := service.Start(ctx, "reconcile", cfg.Base)
	if err != nil {
		return err
	}
	db, err := postgres.Open(ctx, cfg.DatabaseURL, "reconcile", postgres.WithTracer(p.Tracer))
	if err != nil {
		return err
	}
	p.Close(func() { postgres.Close(db) })
	p.Ready("database", func(ctx context.Context) error {
		// Not only a ping: without the tables every request would fail.
		return db.WithContext(ctx).Exec("select from t_reconcile_run, t_reconcile_item limit 0").Error
	})
	p.Settings(postgres.Settings(db))
	store := Store{db}
	if err := store.Clean(ctx); err != nil && !postgres.Down(err) { // then the first run that begins does it
		return fmt.Errorf("looking for runs of dead processes: %w", err)
	}
	m := newMetrics(p.Metrics)
	begun := make(chan *Begun, 1)
	r := cfg.reconciler(store)
	p.Go("runs", func(ctx context.Context) error { return r.Work(ctx, p.Log, m, begun) })
	if err := p.Serve("api", cfg.HTTPAddr, API(cfg.OpsToken, store, p.Log, begun)); err != nil {
		return err
	}
	return p.Wait()
}

// Migrate brings the database up to date.
func Migrate(ctx context.Context, env service.Env) error {
	var cfg struct {
		DatabaseURL string `env:"DATABASE_URL,required,notEmpty"`
	}
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	return postgres.Migrate(ctx, cfg.DatabaseURL, Migrations...)
}
