package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

// Set is one owner's migrations: goose SQL files at the root of FS. Each set keeps its own version table, so that a
// mechanism of shared/ and the service that uses it number their files independently.
type Set struct {
	Name string
	FS   fs.FS
}

// Files is the set that its owner embeds as the folder migrations.
func Files(name string, embedded fs.FS) Set {
	dir, err := fs.Sub(embedded, "migrations")
	if err != nil {
		panic(err) // the folder's name is a constant
	}
	return Set{Name: name, FS: dir}
}

// Migrate brings the database at url up to date, set by set in the order given. Any number of starters may run it at
// once: a lock lets one work and the others find it done. Killed half way, it is run again; each file is one transaction.
func Migrate(ctx context.Context, url string, sets ...Set) error {
	cfg, err := Config(url, "migrate")
	if err != nil {
		return err
	}
	// Another starter's migration or an index build may take its time.
	delete(cfg.RuntimeParams, "statement_timeout")
	delete(cfg.RuntimeParams, "lock_timeout")
	db := stdlib.OpenDB(*cfg)
	defer func() { _ = db.Close() }()
	for _, set := range sets {
		if err := migrate(ctx, db, set); err != nil {
			return fmt.Errorf("migrating %s: %w", set.Name, err)
		}
	}
	return nil
}

func migrate(ctx context.Context, db *sql.DB, set Set) error {
	store, err := database.NewStore(goose.DialectPostgres, "goose_"+set.Name)
	if err != nil {
		return err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300)) // look every second, five minutes long
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider("", db, set.FS,
		goose.WithStore(store), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}
