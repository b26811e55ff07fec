package consumer

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
)

// consumer is one running group member.
type consumer struct {
	Config
	handler Handler
	log     *slog.Logger
	tracer  trace.Tracer
	metrics *metrics

	breaker    breaker
	partitions partitions
	pauses     pauses
	movement   movement
	lag        atomic.Int64  // of all partitions, at the last look
	due        chan struct{} // asks the lane for a look
}

// Run makes the process a member of the group: it consumes, retries, watches itself, and answers under /ops/. Like the
// other parts of a process it stops when the process is told to, after the messages that are in hand.
func Run(p *service.Process, cfg Config, h Handler) error {
	return run(p, cfg, 1, h, func(c *consumer) func(context.Context) error { return c.consume })
}

func run(p *service.Process, cfg Config, together int, h Handler, consume func(*consumer) func(context.Context) error) error {
	if cfg.Group == "" || cfg.DB == nil || h == nil {
		return errors.New("consumer: group, database and handler are needed")
	}
	if err := cfg.Validate(); err != nil {
		return &service.ConfigError{Err: err}
	}
	if cfg.LetterOwner == "" {
		cfg.LetterOwner = cfg.Group
	}
	c := &consumer{
		Config: cfg, handler: h, log: p.Log, tracer: p.Tracer.Tracer("paycast/consumer"),
		breaker: breaker{limit: cfg.FailuresInARow}, partitions: partitions{together: int64(together)}, movement: movement{told: time.Now()}, due: make(chan struct{}, 1),
	}
	c.metrics = newMetrics(p.Metrics, cfg.Group, c.pauses.count)
	p.Ready("database", postgres.Ping(cfg.DB))
	p.Ready("consumer", c.ready)
	c.mount(p.Ops)
	replays := c.replays(p.Metrics)
	replays.Mount(p.Ops)
	p.Settings(c.settings)
	p.Settings(postgres.Settings(cfg.DB))
	p.Go("consumer", consume(c))
	p.Go("retry lane", c.lane)
	p.Go("consumer watch", c.watch)
	p.Go("consumer sweep", c.sweep)
	p.Go("replays", replays.Run)
	return nil
}
