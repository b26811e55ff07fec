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
        SELECT FROM pg_class t WHERE t.relnamespace = current_schema()::regnamespace AND pg_has_role(t.relowner, 'USAGE'))),
    ('may change what t_audit says', EXISTS (
        SELECT FROM pg_class t WHERE t.relnamespace = current_schema()::regnamespace AND t.relname = 't_audit'
          AND has_table_privilege(t.oid, 'UPDATE, DELETE')
          AND NOT EXISTS ( -- a trigger that refuses: before, each row, of update and of delete
            SELECT FROM pg_trigger g WHERE g.tgrelid = t.oid AND g.tgenabled IN ('O', 'A') AND g.tgtype & 27 = 27)))
) AS r ("right", held)
WHERE me.rolname = current_user AND r.held`

// otherDatabases are those of the server to which the role may connect, by PUBLIC's right or its own.
const otherDatabases = `
SELECT datname FROM pg_database
WHERE datallowconn AND NOT datistemplate AND datname <> current_database() AND has_database_privilege(oid, 'CONNECT')
ORDER BY datname`

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
func Seen(ctx context.Context, pool *sql.DB) (seen settings.Database, err error) {
	if seen.Excess, err = texts(ctx, pool, excessRights); err != nil {
		return seen, fmt.Errorf("asking the database about rights: %w", err)
	}
	if seen.Reaches, err = texts(ctx, pool, otherDatabases); err != nil {
		return seen, fmt.Errorf("asking the database about others: %w", err)
	}
	var now time.Time
	asked := time.Now()
	if err := pool.QueryRowContext(ctx, "SELECT current_database(), current_user, clock_timestamp()").Scan(&seen.Name, &seen.Role, &now); err != nil {
		return seen, fmt.Errorf("asking the database for its clock: %w", err)
	}
	took := time.Since(asked)
	seen.RoundTrip, seen.Ahead = settings.Duration(took), settings.Duration(now.Sub(asked.Add(took/2)))
	return seen, nil
}

// texts are the rows of a query with one column. No rows are an empty list, and not null.
func texts(ctx context.Context, pool *sql.DB, query string) ([]string, error) {
	rows, err := pool.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	all := []string{}
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}
