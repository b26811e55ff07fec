package outbox

import (
	"context"

	"github.com/jackc/pgx/v5/stdlib"

	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/settings"
)

// Settings reports the lease that this relay's claims have, and how it sees the database.
func (r *Relay) Settings(ctx context.Context, to *settings.Report) error {
	pool := stdlib.OpenDBFromPool(r.db)
	defer func() { _ = pool.Close() }() // the pool beneath stays open
	seen, err := postgres.Seen(ctx, pool)
	to.Databases = append(to.Databases, seen)
	to.Leases = append(to.Leases, settings.LeaseOf("outbox rows", r.c.rule()))
	return err
}
