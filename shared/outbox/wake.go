package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/paycast/shared/postgres"
)

// channel of LISTEN and NOTIFY. It is the database's, so two systems in two databases do not hear each other.
const channel = "paycast_outbox"

// Waker tells relays that something was committed, so that an event on an idle system need not wait for their poll. It
// is a courtesy: a wake-up may be lost, never an event.
//
// It notifies on a connection of its own and after the commit. NOTIFY inside the transaction, or in a trigger, takes a
// lock of the whole database server at each commit.
type Waker struct {
	url  string
	log  *slog.Logger
	wake chan struct{}
}

// NewWaker is for the process whose transactions append.
func NewWaker(databaseURL string, log *slog.Logger) *Waker {
	return &Waker{url: databaseURL, log: log, wake: make(chan struct{}, 1)}
}

// Wake returns at once. Call it after the commit. Any number of calls during one NOTIFY become one NOTIFY.
func (w *Waker) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run sends the wake-ups until ctx ends.
func (w *Waker) Run(ctx context.Context) error {
	return reconnect(ctx, w.url, "outbox-waker", w.log, func(ctx context.Context, conn *pgx.Conn) error {
		for {
			select {
			case <-w.wake:
			case <-ctx.Done():
				return nil
			}
			if _, err := conn.Exec(ctx, "notify "+channel); err != nil {
				return fmt.Errorf("notifying the relays: %w", err)
			}
		}
	})
}

// listen passes notifications on to the feed.
func (r *Relay) listen(ctx context.Context) error {
	return reconnect(ctx, r.c.DatabaseURL, "outbox-listen", r.c.Log, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "listen "+channel); err != nil {
			return fmt.Errorf("listening for commits: %w", err)
		}
		r.nudge() // for what was committed before
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return fmt.Errorf("listening for commits: %w", err)
			}
			r.nudge()
		}
	})
}

// reconnect runs use on a connection of its own, again and again, until ctx ends. It returns nil: without wake-ups the
// relays poll.
func reconnect(ctx context.Context, url, name string, log *slog.Logger, use func(context.Context, *pgx.Conn) error) error {
	cfg, err := postgres.Config(url, name)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		conn, err := pgx.ConnectConfig(ctx, cfg)
		if err == nil {
			err = use(ctx, conn)
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			_ = conn.Close(closing) // it may be broken already
			cancel()
		}
		if ctx.Err() == nil {
			log.Warn("wake-ups are interrupted; the poll goes on", "connection", name, "error", err)
			pause(ctx, jitter(time.Second, gateCap, 1))
		}
	}
	return nil
}
