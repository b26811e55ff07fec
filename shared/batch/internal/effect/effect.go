// Package effect is the effect that the tests of shared/batch count: a row for each event, without a key of its own that
// could hide a second one, and with the transaction that wrote it.
package effect

import (
	"context"
	"errors"
	"fmt"
	"testing/fstest"

	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/postgres"
)

// Migrations make its table.
var Migrations = postgres.Set{Name: "effect", FS: fstest.MapFS{"00001_effect.sql": {Data: []byte(`
-- +goose Up
CREATE TABLE t_effect (n bigint GENERATED ALWAYS AS IDENTITY, order_no text NOT NULL, version bigint NOT NULL,
    tx xid8 NOT NULL DEFAULT pg_current_xact_id());
`)}}}

// Each is the handler for one event.
func Each(_ context.Context, tx *gorm.DB, e event.Event) error {
	if err := look(e); err != nil {
		return err
	}
	err := tx.Exec("INSERT INTO t_effect (order_no, version) VALUES (?, ?)", e.AggregateID, e.AggregateVersion).Error
	if err != nil {
		return fmt.Errorf("writing the effect: %w", err)
	}
	return nil
}

// All is the handler for many.
func All(_ context.Context, tx *gorm.DB, events []event.Event) error {
	orders, versions := make([]string, len(events)), make([]int64, len(events))
	for i, e := range events {
		if err := look(e); err != nil {
			return err
		}
		orders[i], versions[i] = e.AggregateID, e.AggregateVersion
	}
	err := tx.Exec(`INSERT INTO t_effect (order_no, version)
		SELECT o, v FROM unnest(?::text[], ?::bigint[]) WITH ORDINALITY AS e(o, v, n) ORDER BY n`, &orders, &versions).Error
	if err != nil {
		return fmt.Errorf("writing the effects: %w", err)
	}
	return nil
}

// look lets an order's title say what becomes of its event.
func look(e event.Event) error {
	o, err := e.Order()
	switch {
	case err != nil:
		return consumer.BadData(err)
	case o.Title == "bad":
		return consumer.BadData(errors.New("the title says so"))
	case o.Title == "panic":
		panic("the title says so")
	}
	return nil
}
