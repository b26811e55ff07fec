package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/settings"
)

// excessRights are what the role could do beyond reading and writing rows. Each right that is held is one line.
const excessRights = `
SELECT r.right FROM pg_roles me, LATERAL (VALUES
    ('is a superuser', me.rolsuper),
    ('may create roles', me.rolcreaterole),
    ('may create databases', me.rolcreatedb),
    ('may replicate', me.rolreplication),
    ('passes row security', me.rolbypassrls),
    ('may create tables in ' || current_schema(), has_schema_privilege(current_schema(), 'CREATE')),
    ('may change or drop tables in ' || current_schema(), EXISTS (
        SELECT FROM pg_class t WHERE t.relnamespace = current_schema()::regnamespace AND pg_has_role(t.relowner, 'USAGE')))
) AS r ("right", held)
WHERE me.rolname = current_user AND r.held`

// Settings reports how the service sees its database.
func Settings(db *gorm.DB) func(context.Context, *settings.Report) error {
	return func(ctx context.Context, to *settings.Report) error {
		pool, err := db.DB()
		if err != nil {
			return err
		}
		seen, err := Seen(ctx, pool)
		to.Databases = append(to.Databases, seen)
		return err
	}
}

// Seen asks the database as whom we are connected, with which rights, and how far apart the clocks are.
func Seen(ctx context.Context, pool *sql.DB) (settings.Database, error) {
	seen := settings.Database{Excess: []string{}}
	rows, err := pool.QueryContext(ctx, excessRights)
	if err != nil {
		return seen, fmt.Errorf("asking the database about rights: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var right string
		if err := rows.Scan(&right); err != nil {
			return seen, fmt.Errorf("asking the database about rights: %w", err)
		}
		seen.Excess = append(seen.Excess, right)
	}
	if err := rows.Err(); err != nil {
		return seen, fmt.Errorf("asking the database about rights: %w", err)
	}
	var now time.Time
	asked := time.Now()
	if err := pool.QueryRowContext(ctx, "SELECT current_user, clock_timestamp()").Scan(&seen.Role, &now); err != nil {
		return seen, fmt.Errorf("asking the database for its clock: %w", err)
	}
	took := time.Since(asked)
	seen.RoundTrip, seen.Ahead = settings.Duration(took), settings.Duration(now.Sub(asked.Add(took/2)))
	return seen, nil
}
