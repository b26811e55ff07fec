package points

import (
	"context"
	"embed"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations are the consume log and this service's own tables, in one database, so that one transaction holds both.
var Migrations = []postgres.Set{inbox.Migrations, audit.Migrations, postgres.Files("points", files)}

// Migrate is the subcommand `points migrate`.
func Migrate(ctx context.Context, env service.Env) error {
	var cfg struct {
		DatabaseURL string `env:"DATABASE_URL,required,notEmpty"`
	}
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	return postgres.Migrate(ctx, cfg.DatabaseURL, Migrations...)
}
