package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/lease"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/telemetry"
)

// GCPercent is what a process that is only a relay should give to debug.SetGCPercent. The live heap is a few megabytes
// under a thousand stacks; at Go's default of 100 a collection starts with every few megabytes of messages, and reading the
// stacks took a quarter of the relay's CPU. At 400 the process has 80 MB instead of 50; more gained nothing.
const GCPercent = 400

// Config of a relay. DatabaseURL and Publisher have no default.
type Config struct {
	DatabaseURL string
	Publisher   message.Publisher     // usually kafka.NewPublisher; asked to publish nothing, it connects; the relay does not close it
	Metrics     prometheus.Registerer // nil: not registered
	Log         *slog.Logger
	Tracer      trace.TracerProvider // of the sends; nil: none
	Owner       string               // shown in owner_token; default host and process id

	Lease    time.Duration // how long a dead relay's rows wait for another; default 15 s
	Deadline time.Duration // bound of one send; default 5 s
	Margin   time.Duration // kept for the settle; default 2 s
	Poll     time.Duration // the guarantee behind the wake-up; default 1 s

	Batch   int // rows of one claim; default 500
	Batches int // claims in flight; default 6
	Sends   int // sends under way, over all claims; default 512

	RetryBase time.Duration // first backoff of a row, doubled each time, full jitter; default 200 ms
	RetryCap  time.Duration // default 30 s
	Crashes   int           // claims that may end with their relay before a row is claimed alone, and then before it is DEAD; default 3
}

func (c *Config) setDefaults() {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	if c.Owner == "" {
		host, _ := os.Hostname() // only a label; without it the process id must do
		c.Owner = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	c.Lease = cmp.Or(c.Lease, 15*time.Second)
	c.Deadline = cmp.Or(c.Deadline, 5*time.Second)
	c.Margin = cmp.Or(c.Margin, 2*time.Second)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Batch, c.Batches, c.Sends = cmp.Or(c.Batch, 500), cmp.Or(c.Batches, 6), cmp.Or(c.Sends, 512)
	c.RetryBase, c.RetryCap = cmp.Or(c.RetryBase, 200*time.Millisecond), cmp.Or(c.RetryCap, 30*time.Second)
	c.Crashes = cmp.Or(c.Crashes, 3)
}

func (c Config) rule() lease.Rule {
	return lease.Rule{Lease: c.Lease, Deadline: c.Deadline, Margin: c.Margin}
}

// Validate names everything that is wrong, after defaults.
func (c Config) Validate() error {
	c.setDefaults()
	var bad []error
	if c.DatabaseURL == "" {
		bad = append(bad, errors.New("no database URL"))
	}
	if c.Publisher == nil {
		bad = append(bad, errors.New("no publisher"))
	}
	if err := c.rule().Validate(); err != nil {
		bad = append(bad, err)
	}
	if c.Batch < 1 || c.Batches < 1 || c.Sends < 1 || c.Crashes < 1 || c.Poll < 0 || c.RetryBase < 0 || c.RetryCap < c.RetryBase {
		bad = append(bad, errors.New("batch, batches, sends and crashes must be positive, poll and retry base not negative, and the retry cap no less than its base"))
	}
	return errors.Join(bad...)
}

// Relay moves committed events from the table to Kafka. Any number of relays may run on one table.
type Relay struct {
	c      Config
	m      *metrics
	db     *pgxpool.Pool
	gate   gate
	tracer trace.Tracer  // nil: off
	wake   chan struct{} // somebody committed, or something was settled: look again
	alive  pulse
	stale  atomic.Bool // a destination was paused: the lanes must be looked at again
	mended mendPlace   // of sample alone

	silence time.Duration // see answerWithin
}

// NewRelay opens no connection yet: a relay can start while its database and Kafka are down.
func NewRelay(c Config) (*Relay, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the outbox relay: %w", err)
	}
	c.setDefaults()
	db, err := connect(c)
	if err != nil {
		return nil, fmt.Errorf("configuring the outbox relay: %w", err)
	}
	m, err := newMetrics(c.Metrics)
	if err != nil {
		return nil, fmt.Errorf("registering the outbox's metrics: %w", err)
	}
	r := &Relay{c: c, m: m, db: db, gate: gate{base: c.RetryBase, cap: gateCap}, wake: make(chan struct{}, 1), silence: 70 * time.Second}
	if !telemetry.Off(c.Tracer) {
		r.tracer = c.Tracer.Tracer("paycast/outbox")
	}
	return r, nil
}

func connect(c Config) (*pgxpool.Pool, error) {
	conn, err := postgres.Config(c.DatabaseURL, "outbox-relay")
	if err != nil {
		return nil, err
	}
	// The statements here are index probes by design. From some size on, or with stale statistics, the planner would
	// read the table instead.
	conn.RuntimeParams["enable_seqscan"] = "off"
	conn.RuntimeParams["enable_memoize"] = "off" // no statement asks for the same row twice
	// Each statement of a transaction must see what was committed before it, after a wait for a turn for example.
	conn.RuntimeParams["default_transaction_isolation"] = "read committed"
	// Locks here are held for moments. One that is not, by a person or a session that hangs, must not stop other destinations.
	conn.RuntimeParams["lock_timeout"] = "1s"
	// A claim or a settle that a crash of the database undoes is done again: the event goes out twice, never lost. What is
	// undone is the newest, because the log is replayed from its start to where it ends: no settle outlives one before it, and
	// order holds. Business commits are on other connections, and wait for the disk.
	conn.RuntimeParams["synchronous_commit"] = "off"
	pool, err := pgxpool.ParseConfig(c.DatabaseURL)
	if err != nil {
		return nil, err
	}
	pool.ConnConfig = conn
	pool.MaxConns = int32(c.Batches) + 3
	return pgxpool.NewWithConfig(context.Background(), pool)
}

// Run relays until ctx ends, then finishes what is being sent, settles it, gives back what was not begun, and returns
// nil. It survives the loss of the database and of Kafka. Run may be called once.
func (r *Relay) Run(ctx context.Context) error { // FLOW 4/9
	defer r.db.Close()
	fwd, err := forwarder.NewForwarder(
		&subscriber{r},
		newPublisher(r.c.Publisher, r.c.Deadline, r.c.Sends, r.m),
		kafka.Logger(r.c.Log),
		forwarder.Config{
			ForwarderTopic: "t_outbox_event",
			CloseTimeout:   r.c.Deadline + r.c.Margin,
			Marshaler:      envelopeCodec{},
		})
	if err != nil {
		return fmt.Errorf("building the forwarder: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return fwd.Run(ctx) })
	g.Go(func() error { return r.listen(ctx) })
	g.Go(func() error { return r.sample(ctx) })
	return g.Wait()
}

// Ready reports why the relay makes no progress, or nil.
func (r *Relay) Ready(context.Context) error {
	since, ever := r.alive.since()
	if !ever {
		return errors.New("the outbox has not been read yet")
	}
	if since > 5*r.c.Poll+5*time.Second {
		return fmt.Errorf("the outbox has not been read for %v", since.Round(time.Second))
	}
	if failing := r.gate.failing(); failing > 5*time.Second {
		return fmt.Errorf("kafka cannot be reached for %v", failing.Round(time.Second))
	}
	return nil
}
