// Subject is the consumer on which the conformance suite is tested: right as "right", and wrong in one way under each
// other name. Its effect is a row of t_effect, which has no key of its own that could hide a fault.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
)

const group = "subject"

func main() {
	commands := []service.Command{
		{Name: "right", Run: right(handle)}, {Name: "right-awaiting", Run: right(await)}, {Name: "right-projection", Run: right(project)},
		// Wrong only where the suite is told that they are something else.
		{Name: "awaits-what-it-does-not-need", Run: right(await)}, {Name: "does-not-await-what-it-needs", Run: right(handle)},
		{Name: "unversioned-projection", Run: right(overwrite)},
		{Name: "right-healing-projection", Run: healing(consumer.Down)},
		{Name: "does-not-heal-projection", Run: right(project)}, {Name: "counts-silence-when-healing-projection", Run: healing(consumer.Transient)},
		{Name: "ends-without-its-database", Run: impatient(right(handle))},
		{Name: "watermills-defaults", Run: wrong(once).runWith(watermillsDefaults)},
	}
	for name, handle := range wrongs {
		commands = append(commands, service.Command{Name: name, Run: handle.runWith(safeDefaults)})
	}
	service.Main("subject", commands...)
}

type config struct {
	service.Base
	consumer.Settings
	DatabaseURL string `env:"DATABASE_URL,required,notEmpty"`
}

func start(ctx context.Context, env service.Env) (*service.Process, *gorm.DB, config, error) {
	var cfg config
	if err := env.Parse(&cfg); err != nil {
		return nil, nil, cfg, err
	}
	p, err := service.Start(ctx, group, cfg.Base)
	if err != nil {
		return nil, nil, cfg, err
	}
	db, err := postgres.Open(ctx, cfg.DatabaseURL, group)
	if err != nil {
		return nil, nil, cfg, err
	}
	p.Close(func() { postgres.Close(db) })
	return p, db, cfg, nil
}

func right(handle func(context.Context, *gorm.DB, event.Event) error) func(context.Context, service.Env) error {
	return func(ctx context.Context, env service.Env) error {
		p, db, cfg, err := start(ctx, env)
		if err != nil {
			return err
		}
		err = consumer.Run(p, consumer.Config{Settings: cfg.Settings, Group: group, DB: db}, consumer.InTransaction(handle))
		if err != nil {
			return err
		}
		return p.Wait()
	}
}

// impatient ends when its database is not there yet, and leaves it to somebody to start it again.
func impatient(run func(context.Context, service.Env) error) func(context.Context, service.Env) error {
	return func(ctx context.Context, env service.Env) error {
		db, err := postgres.Open(ctx, env["DATABASE_URL"], group)
		if err != nil {
			return err
		}
		defer postgres.Close(db)
		if err := postgres.Ping(db)(ctx); err != nil {
			return err
		}
		return run(ctx, env)
	}
}

// healing keeps the newest version of each order outside the log's transaction, and asks its owner when one is missing.
// silence is the answer when the owner gives none.
func healing(silence func(error) error) func(context.Context, service.Env) error {
	return func(ctx context.Context, env service.Env) error {
		p, db, cfg, err := start(ctx, env)
		if err != nil {
			return err
		}
		owner := ops.Client{BaseURL: cfg.SourceURL, Token: cfg.SourceToken}
		heal := consumer.Healed(func(ctx context.Context, e event.Event) (int64, error) {
			var o event.Order
			if err := owner.GetJSON(ctx, "/ops/orders/"+url.PathEscape(e.AggregateID), nil, &o); err != nil {
				return 0, silence(err)
			}
			return o.Version, raise(db.WithContext(ctx), o.OrderNo, o.Version)
		})
		guard := consumer.NewGuard(p.Metrics, group, consumer.Gaps{event.PaymentSucceeded: heal, event.OrderCanceled: heal})
		err = consumer.Run(p, consumer.Config{Settings: cfg.Settings, Group: group, DB: db}, consumer.Outside(func(ctx context.Context, e event.Event) error {
			last, err := lastOf(db.WithContext(ctx), e)
			if err != nil {
				return err
			}
			if err := guard.Admit(ctx, last, e); err != nil {
				return err
			}
			return raise(db.WithContext(ctx), e.AggregateID, e.AggregateVersion)
		}))
		if err != nil {
			return err
		}
		return p.Wait()
	}
}

func raise(db *gorm.DB, orderNo string, version int64) error {
	return db.Exec(`INSERT INTO t_projection VALUES (?, ?) ON CONFLICT (order_no) DO UPDATE SET version = excluded.version
		WHERE t_projection.version < excluded.version`, orderNo, version).Error
}

func lastOf(db *gorm.DB, e event.Event) (version int64, err error) {
	err = db.Raw("SELECT version FROM t_projection WHERE order_no = ?", e.AggregateID).Scan(&version).Error
	return version, err
}

func handle(_ context.Context, tx *gorm.DB, e event.Event) error {
	if err := look(e); err != nil {
		return consumer.BadData(err)
	}
	return effect(tx, e)
}

// await is for an effect that builds on an earlier one, as taking back does on giving.
func await(ctx context.Context, tx *gorm.DB, e event.Event) error {
	if e.Type == event.OrderCanceled {
		var n int64
		if err := tx.Raw("SELECT count(*) FROM t_effect WHERE order_no = ?", e.AggregateID).Scan(&n).Error; err != nil {
			return err
		}
		if n == 0 {
			return consumer.Waiting(errors.New("there is nothing yet to take back"))
		}
	}
	return handle(ctx, tx, e)
}

// look lets an order's title say what becomes of its event.
func look(e event.Event) error {
	o, err := e.Order()
	switch {
	case err != nil:
		return err
	case o.Title == "bad":
		return errors.New("the title says so")
	case o.Title == "panic":
		panic("the title says so")
	}
	return nil
}

func effect(tx *gorm.DB, e event.Event) error {
	err := tx.Exec("INSERT INTO t_effect (order_no, event_type) VALUES (?, ?)", e.AggregateID, e.Type).Error
	if err != nil {
		return fmt.Errorf("writing the effect: %w", err)
	}
	return nil
}

// project keeps the newest version of each order.
func project(ctx context.Context, tx *gorm.DB, e event.Event) error {
	last, err := lastOf(tx, e)
	if err != nil {
		return err
	}
	if last > e.AggregateVersion {
		return consumer.Superseded
	}
	return overwrite(ctx, tx, e)
}

// overwrite is what project would be without the version: the last one to arrive stays.
func overwrite(_ context.Context, tx *gorm.DB, e event.Event) error {
	return tx.Exec(`INSERT INTO t_projection VALUES (?, ?) ON CONFLICT (order_no) DO UPDATE SET version = excluded.version`,
		e.AggregateID, e.AggregateVersion).Error
}
