package consume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/deploy/bench/internal/design"
	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/batch"
	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/embedded"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
)

// Group is the group of every design.
const Group = "bench"

// Target is what one consumer process works on.
type Target struct {
	DatabaseURL string
	Brokers     string
	Failing     int // one event in so many fails each time; 0: none
	Slow        int // one event in so many takes SlowFor; 0: none
}

// SlowFor is how long a slow event takes.
const SlowFor = 100 * time.Millisecond

// Labels are the designs for people, by name.
var Labels = map[string]string{
	"lean":     "one transaction each, lean",
	"single":   "shared/consumer, one by one",
	"each":     "shared/batch, handler per event",
	"together": "shared/batch, handler per batch",
}

// Prepare makes the tables in an empty database.
func Prepare(ctx context.Context, databaseURL string) error {
	if err := postgres.Migrate(ctx, databaseURL, inbox.Migrations, audit.Migrations); err != nil {
		return err
	}
	db, err := postgres.Open(ctx, databaseURL, "prepare")
	if err != nil {
		return err
	}
	defer postgres.Close(db)
	return db.Exec(`CREATE TABLE t_effect (
		n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id text NOT NULL, order_no text NOT NULL, version bigint NOT NULL,
		begun_at timestamptz NOT NULL DEFAULT now())`).Error
}

// Run consumes until ctx ends.
func Run(ctx context.Context, name string, t Target) error {
	db, err := postgres.Open(ctx, t.DatabaseURL, name, postgres.WithPool(16))
	if err != nil {
		return err
	}
	defer postgres.Close(db)
	h := handler(t)
	if name == "lean" {
		return lean(ctx, db, t.Brokers, h.one)
	}
	port, err := embedded.FreePort()
	if err != nil {
		return err
	}
	p, err := service.Start(ctx, "bench", service.Base{OpsAddr: fmt.Sprintf("127.0.0.1:%d", port), LogLevel: "error"})
	if err != nil {
		return err
	}
	cfg := consumer.Config{Group: Group, DB: db, Settings: consumer.Settings{
		Brokers: t.Brokers, Session: 10 * time.Second, HandlerTimeout: 10 * time.Second, Lease: 30 * time.Second, Attempts: 10,
		Backoff: time.Hour, MaxBackoff: time.Hour, MaxWait: time.Hour, Workers: 1, // the lane is not measured
		RetryPoll: time.Second, FailuresInARow: 10, Stuck: time.Minute, LetterRetention: time.Hour,
	}}
	switch name {
	case "single":
		err = consumer.Run(p, cfg, consumer.InTransaction(h.one))
	case "each":
		err = batch.Run(p, batch.Config{Config: cfg}, consumer.InTransaction(h.one))
	case "together":
		err = batch.Run(p, batch.Config{Config: cfg}, consumer.Batched(h.all))
	default:
		err = fmt.Errorf("there is no consumer %q", name)
	}
	return errors.Join(err, p.Wait())
}

// Log is where a process writes what goes wrong.
func Log() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// handler makes the effect, the same whether it is asked for one event or for many.
type handler Target

var errFailing = errors.New("this event fails")

func (h handler) one(ctx context.Context, tx *gorm.DB, e event.Event) error {
	if err := h.trouble(e); err != nil {
		return err
	}
	return tx.WithContext(ctx).Exec("INSERT INTO t_effect (event_id, order_no, version) VALUES (?, ?, ?)", e.ID, e.AggregateID, e.AggregateVersion).Error
}

func (h handler) all(ctx context.Context, tx *gorm.DB, events []event.Event) error {
	ids, orders, versions := make([]string, len(events)), make([]string, len(events)), make([]int64, len(events))
	for i, e := range events {
		if err := h.trouble(e); err != nil {
			return err
		}
		ids[i], orders[i], versions[i] = e.ID, e.AggregateID, e.AggregateVersion
	}
	return tx.WithContext(ctx).Exec(`INSERT INTO t_effect (event_id, order_no, version)
		SELECT id, o, v FROM unnest(?::text[], ?::text[], ?::bigint[]) WITH ORDINALITY AS e(id, o, v, n) ORDER BY n`,
		&ids, &orders, &versions).Error
}

// trouble is what some events are.
func (h handler) trouble(e event.Event) error {
	i := design.Number(e)
	if h.Slow > 0 && i%h.Slow == h.Slow/2 {
		time.Sleep(SlowFor)
	}
	if h.Failing > 0 && i%h.Failing == h.Failing/2 {
		return errFailing
	}
	return nil
}
