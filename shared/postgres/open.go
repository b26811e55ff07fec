// Package postgres opens databases with the settings that reliable messaging needs, migrates them, runs transactions
// that may be retried, and sorts errors into classes.
//
// It does not own any table: each table's SQL stands with its owner and is handed to Migrate as a Set.
package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"go.opentelemetry.io/otel/trace"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"example.com/paycast/shared/telemetry"
)

// Option changes what Open sets by default.
type Option func(*options)

type options struct {
	pool   int
	tracer trace.TracerProvider
	probes bool
}

// WithPool limits the pool to n connections. The default is 16.
func WithPool(n int) Option { return func(o *options) { o.pool = n } }

// WithTracer makes a span of every statement that is part of a trace. Without it, or with one that is off, tracing costs
// nothing.
func WithTracer(tp trace.TracerProvider) Option { return func(o *options) { o.tracer = tp } }

// WithIndexProbes is for a pool whose statements are index probes by design. From some size on, with stale statistics, or
// by a plan from when the table was small, the planner would read the table instead.
func WithIndexProbes() Option { return func(o *options) { o.probes = true } }

// Open gives a pool for url. A database that is down is no error: a process may start before it, is not ready until then
// (see Ping), and needs nobody to start it again. What no waiting mends fails here and not at the first payment: text that
// is no address, a server that has no such database. appName is what pg_stat_activity shows. Close the returned handle
// with Close.
func Open(ctx context.Context, url, appName string, opts ...Option) (*gorm.DB, error) {
	o := options{pool: 16}
	for _, opt := range opts {
		opt(&o)
	}
	cfg, err := Config(url, appName)
	if err != nil {
		return nil, err
	}
	if o.probes {
		cfg.RuntimeParams["enable_seqscan"] = "off"
	}
	if !telemetry.Off(o.tracer) {
		// Statements only, never their parameters: those hold payloads.
		cfg.Tracer = otelpgx.NewTracer(otelpgx.WithTracerProvider(o.tracer))
	}
	pool := stdlib.OpenDB(*cfg)
	pool.SetMaxOpenConns(o.pool)
	pool.SetMaxIdleConns(o.pool)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	db, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: pool}), &gorm.Config{
		// GORM's own log prints statements with their values, so it is silent; errors are logged by the caller, once.
		Logger: logger.Discard,
		// An unnoticed nested transaction would share its savepoint's name with its parent.
		DisableNestedTransaction: true,
		// Single statements need no transaction of their own; ours are explicit.
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
		NowFunc:                func() time.Time { return time.Now().UTC().Truncate(time.Microsecond) },
	})
	if err == nil {
		if err = pool.PingContext(ctx); Down(err) {
			err = nil // the pool connects when it is used
		}
	}
	if err != nil {
		_ = pool.Close()
		return nil, fmt.Errorf("opening database %s of %s:%d as %s: %w", cfg.Database, cfg.Host, cfg.Port, cfg.User, err)
	}
	return db, nil
}

// Config parses url and adds the session settings that all our connections have. Use it for connections outside the
// pool, such as LISTEN.
func Config(url, appName string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		// pgx hides the password in this error, but a URL that does not parse may hold it anywhere.
		return nil, fmt.Errorf("DATABASE_URL is not a Postgres address; expected postgres://user:password@host:port/database")
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 5 * time.Second
	}
	for name, value := range map[string]string{
		"application_name": appName,
		"timezone":         "UTC",
		// A misjudged plan of the claim statement spent nine tenths of its time compiling itself.
		"jit": "off",
		// A waiting lock or a forgotten transaction must not take the pool with it.
		"lock_timeout":                        "10s",
		"idle_in_transaction_session_timeout": "60s",
		"statement_timeout":                   "60s",
	} {
		if _, set := cfg.RuntimeParams[name]; !set {
			cfg.RuntimeParams[name] = value
		}
	}
	return cfg, nil
}

// Close closes the pool behind db.
func Close(db *gorm.DB) {
	pool, err := db.DB()
	if err == nil {
		err = pool.Close()
	}
	if err != nil {
		slog.Warn("closing the database pool", "error", err)
	}
}

// Ping is a readiness check.
func Ping(db *gorm.DB) func(context.Context) error {
	return func(ctx context.Context) error {
		pool, err := db.DB()
		if err != nil {
			return err
		}
		return pool.PingContext(ctx)
	}
}
