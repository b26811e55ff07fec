package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/settings"
	"example.com/paycast/shared/telemetry"
)

// grace is how long loops and requests get to end after the signal. Orchestrators wait longer than this.
const grace = 20 * time.Second

// Base is the part of the configuration that every process has. Set OpsAddr to the service's own default before Parse.
type Base struct {
	OpsAddr      string `env:"OPS_ADDR"`
	OpsToken     string `env:"OPS_TOKEN"`
	LogLevel     string `env:"LOG_LEVEL" envDefault:"info"`
	OTLPEndpoint string `env:"OTEL_EXPORTER_OTLP_ENDPOINT"`
}

// Process is one running program.
type Process struct {
	Log     *slog.Logger
	Metrics *prometheus.Registry
	Tracer  trace.TracerProvider
	Ops     *ops.Server

	started   atomic.Bool     // Wait was called: all that has to run is running
	ctx       context.Context // ends at the signal or when a part fails
	cancel    context.CancelCauseFunc
	flush     func(context.Context) error
	loops     sync.WaitGroup
	listeners []*http.Server // in the order in which they started; the ops listener is first
	closers   []func()
	reporters []func(context.Context, *settings.Report) error
	name      string
	broken    *prometheus.GaugeVec // see checkSettings
}

// Start opens the ops listener at once, not ready, so that health can be seen while the rest comes up. An OPS_TOKEN
// that is set must be a real secret; unset, everything under /ops/ stays closed.
func Start(ctx context.Context, name string, b Base) (*Process, error) {
	return start(ctx, name, b, os.Stderr)
}

func start(ctx context.Context, name string, b Base, logs io.Writer) (*Process, error) {
	if b.OpsToken != "" {
		if err := CheckSecret("OPS_TOKEN", b.OpsToken); err != nil {
			return nil, &ConfigError{err}
		}
	}
	log, err := telemetry.Logger(logs, name, b.LogLevel)
	if err != nil {
		return nil, &ConfigError{err}
	}
	tracer, flush, err := telemetry.Tracer(ctx, name, b.OTLPEndpoint)
	if err != nil {
		return nil, &ConfigError{err}
	}
	reg := telemetry.Registry()
	p := &Process{
		Log: log, Metrics: reg, Tracer: tracer, Ops: ops.NewServer(b.OpsToken, reg), flush: flush,
		name: name, broken: brokenRules(reg),
	}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	p.Ops.Handle("GET /ops/settings", http.HandlerFunc(p.settings))
	p.Ready("running", func(context.Context) error {
		switch {
		case p.ctx.Err() != nil:
			return errors.New("shutting down")
		case !p.started.Load():
			return errors.New("starting up")
		}
		return nil
	})
	// After the check: whoever asks first must not be told that all is ready.
	if err := p.listen("ops", b.OpsAddr, p.Ops); err != nil {
		p.cancel(err)
		return nil, err
	}
	return p, nil
}

// Context ends at the signal or when a part of the process fails.
func (p *Process) Context() context.Context { return p.ctx }

// Ready adds a condition to /readyz.
func (p *Process) Ready(name string, check func(context.Context) error) { p.Ops.Ready(name, check) }

// Close registers a function that Wait calls at the very end, last registered first.
func (p *Process) Close(fn func()) { p.closers = append(p.closers, fn) }

// Serve answers h at addr. Requests that run when the process is told to stop are finished. A request's context ends after
// 25 s.
func (p *Process) Serve(name, addr string, h http.Handler) error {
	return p.listen(name, addr, telemetry.Handler(p.Tracer, h))
}

func (p *Process) listen(name, addr string, h http.Handler) error {
	var lc net.ListenConfig
	l, err := lc.Listen(p.ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listening for %s at %q: %w", name, addr, err)
	}
	server := &http.Server{
		Handler:           bounded(h),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second, WriteTimeout: answerWithin + 5*time.Second, IdleTimeout: 60 * time.Second,
		MaxHeaderBytes: 32 << 10,
		ErrorLog:       slog.NewLogLogger(p.Log.Handler(), slog.LevelError), // a handler's panic, above all
	}
	p.listeners = append(p.listeners, server)
	p.Log.Info("listening", "for", name, "addr", l.Addr().String())
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			p.cancel(fmt.Errorf("serving %s: %w", name, err))
		}
	}()
	return nil
}

// answerWithin bounds the work for a request, so that one whose database neither answers nor refuses is still told so.
const answerWithin = 25 * time.Second

func bounded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
		defer cancel()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Go runs a background loop that must last as long as the process. When it returns before the process is told to
// stop, the process ends, with its error or for want of it.
func (p *Process) Go(name string, run func(ctx context.Context) error) {
	p.loops.Go(func() {
		err := run(p.ctx)
		switch {
		case p.ctx.Err() == nil && err == nil:
			p.cancel(fmt.Errorf("%s ended by itself", name))
		case err != nil && !errors.Is(err, context.Canceled):
			p.Log.Error("a part of the process failed", "part", name, "error", err)
			p.cancel(fmt.Errorf("%s: %w", name, err))
		}
	})
}

// Wait makes the process ready, lets it check its own settings beside its work, and blocks until it is told to stop or a part fails, then ends it in order: not ready; no
// new requests, running ones finished and loops stopped; then the ops listener; then whatever Close was given. It
// returns nil after a stop by signal in which everything ended in time.
func (p *Process) Wait() error {
	p.started.Store(true)
	p.loops.Go(p.checkSettings)
	<-p.ctx.Done()
	err := context.Cause(p.ctx)
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	p.Log.Info("stopping", "cause", fmt.Sprint(context.Cause(p.ctx)))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), grace)
	defer cancel()
	loops := make(chan struct{})
	go func() { p.loops.Wait(); close(loops) }()
	for _, server := range p.listeners[1:] {
		err = errors.Join(err, server.Shutdown(ctx))
	}
	select {
	case <-loops:
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("background work did not stop within %s", grace))
	}
	if flushErr := p.flush(ctx); flushErr != nil {
		p.Log.Warn("sending the last spans", "error", flushErr)
	}
	err = errors.Join(err, p.listeners[0].Shutdown(ctx))
	for i := len(p.closers) - 1; i >= 0; i-- {
		p.closers[i]()
	}
	p.Log.Info("stopped")
	return err
}
