package notify

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"example.com/paycast/shared/lease"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/settings"
)

type sendConfig struct {
	service.Base
	DatabaseURL   string        `env:"DATABASE_URL,required,notEmpty"`
	SMSURL        string        `env:"SMS_URL,required,notEmpty"`
	PaymentOpsURL string        `env:"PAYMENT_OPS_URL,required,notEmpty"`
	Rate          float64       `env:"SMS_RATE"`    // messages per second, over all senders; 0 pauses
	Burst         int           `env:"SMS_BURST"`   // how many may go at once after a quiet time
	Workers       int           `env:"SMS_WORKERS"` // requests of this process under way at once
	Timeout       time.Duration `env:"SMS_TIMEOUT"` // of one request
	Lease         time.Duration `env:"SMS_LEASE"`   // how long the commands of a dead sender wait
	RetryBase     time.Duration `env:"SMS_RETRY_BASE"`
	RetryCap      time.Duration `env:"SMS_RETRY_CAP"`
	Poll          time.Duration `env:"SMS_POLL"`
}

func (c *sendConfig) rule() lease.Rule {
	// After the request there may be a question about its outcome, and there is the settle.
	return lease.Rule{Lease: c.Lease, Deadline: c.Timeout, Margin: min(c.Timeout, lookUp) + settleTimeout}
}

func (c *sendConfig) settings(_ context.Context, to *settings.Report) error {
	to.Leases = append(to.Leases, settings.LeaseOf("notification commands", c.rule()))
	return nil
}

// Validate names everything that is wrong.
func (c *sendConfig) Validate() error {
	c.SMSURL, c.PaymentOpsURL = strings.TrimRight(c.SMSURL, "/"), strings.TrimRight(c.PaymentOpsURL, "/")
	var bad []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Errorf(format, args...))
		}
	}
	for name, value := range map[string]string{"SMS_URL": c.SMSURL, "PAYMENT_OPS_URL": c.PaymentOpsURL} {
		u, err := url.Parse(value)
		check(err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https"), "%s must be like http://host:port", name)
	}
	check(c.OpsToken != "", "OPS_TOKEN is not set; payment gives contacts only to who has it")
	check(c.Rate >= 0 && c.Rate <= 10_000, "SMS_RATE must be from 0 (paused) to 10000")
	check(c.Burst >= 1 && c.Burst <= 10_000, "SMS_BURST must be from 1 to 10000")
	check(c.Workers >= 1 && c.Workers <= 64, "SMS_WORKERS must be from 1 to 64")
	check(c.Poll > 0 && c.RetryBase > 0 && c.RetryCap >= c.RetryBase, "SMS_POLL and SMS_RETRY_BASE must be positive, SMS_RETRY_CAP no less")
	if err := c.rule().Validate(); err != nil {
		bad = append(bad, fmt.Errorf("SMS_LEASE and SMS_TIMEOUT: %w", err))
	}
	return errors.Join(bad...)
}

// Send is the subcommand `notify send`.
func Send(ctx context.Context, env service.Env) error {
	cfg := sendConfig{
		Base: service.Base{OpsAddr: "127.0.0.1:9086"}, Rate: 10, Burst: 10, Workers: 4, Timeout: 5 * time.Second, Lease: 20 * time.Second,
		RetryBase: time.Second, RetryCap: time.Minute, Poll: 500 * time.Millisecond,
	}
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	p, err := service.Start(ctx, "sender", cfg.Base)
	if err != nil {
		return err
	}
	db, err := postgres.Open(ctx, cfg.DatabaseURL, "notify-sender", postgres.WithPool(cfg.Workers+3),
		postgres.WithTracer(p.Tracer), postgres.WithIndexProbes())
	if err != nil {
		return err
	}
	p.Close(func() { postgres.Close(db) })
	p.Ready("postgres", postgres.Ping(db))
	p.Settings(postgres.Settings(db))
	p.Settings(cfg.settings)
	sms := newProvider(cfg.SMSURL, cfg.Timeout, cfg.Workers, p.Tracer)
	p.Close(sms.close)
	host, _ := os.Hostname() // only a label; without it the process id must do
	s := &sender{
		db: db, bucket: newBucket(db, cfg.Rate, cfg.Burst), provider: sms, contacts: newContacts(cfg.PaymentOpsURL, cfg.OpsToken, p.Tracer),
		rule: cfg.rule(), owner: fmt.Sprintf("%s-%d", host, os.Getpid()), workers: cfg.Workers,
		poll: cfg.Poll, retryBase: cfg.RetryBase, retryCap: cfg.RetryCap, metrics: newMetrics(p.Metrics), log: p.Log,
		tracer: p.Tracer.Tracer("paycast/notify"),
	}
	if cfg.Rate == 0 {
		s.metrics.paused.Set(1)
		p.Log.Warn("sending is paused, because SMS_RATE is 0; commands are kept")
	}
	p.Ops.Handle("GET /ops/commands", listCommands(db, p.Log, &pace{cfg.Rate, cfg.Burst, cfg.Rate == 0}))
	p.Go("sender", s.Run)
	p.Go("metrics", func(ctx context.Context) error { return s.metrics.sample(ctx, db, 2*time.Second) })
	return p.Wait()
}
