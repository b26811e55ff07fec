package search

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/elastic"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/telemetry"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations are the consume log and this service's own table.
var Migrations = []postgres.Set{inbox.Migrations, audit.Migrations, postgres.Files("search", files)}

// definition is the index. Another mapping needs a rebuild: until then this build writes nothing. Times are date_nanos
// because date would cut off microseconds, and orders made in the same millisecond would be sorted wrongly.
var definition = elastic.Definition{
	Alias: "orders",
	Mapping: `{"dynamic": "strict", "properties": {
		"order_no":   {"type": "keyword"},
		"user_id":    {"type": "keyword"},
		"title":      {"type": "text"},
		"amount":     {"type": "long"},
		"currency":   {"type": "keyword"},
		"status":     {"type": "keyword"},
		"version":    {"type": "long"},
		"created_at": {"type": "date_nanos"},
		"paid_at":    {"type": "date_nanos"}
	}}`,
}

func openIndex(cfg elastic.Config) (index *elastic.Index, closeIt func(), err error) {
	client, err := elastic.New(cfg)
	if err != nil {
		return nil, nil, &service.ConfigError{Err: fmt.Errorf("ELASTICSEARCH_URL: %w", err)}
	}
	index, err = client.Index(definition)
	return index, client.Close, err
}

// migrateWait is how long Migrate waits for Elasticsearch, which takes half a minute to start.
const migrateWait = 2 * time.Minute

// Migrate is the subcommand `search migrate`: the tables, then the index. An index that is there already is checked and
// left as it is; one with another mapping is an error, and `search rebuild` replaces it.
func Migrate(ctx context.Context, env service.Env) error {
	var cfg struct {
		DatabaseURL      string `env:"DATABASE_URL,required,notEmpty"`
		ElasticsearchURL string `env:"ELASTICSEARCH_URL,required,notEmpty"`
	}
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	log, err := telemetry.Logger(os.Stderr, Group, "info")
	if err != nil {
		return err
	}
	if err := postgres.Migrate(ctx, cfg.DatabaseURL, Migrations...); err != nil {
		return err
	}
	db, err := postgres.Open(ctx, cfg.DatabaseURL, Group)
	if err != nil {
		return err
	}
	defer postgres.Close(db)
	index, closeIndex, err := openIndex(elastic.Config{URL: cfg.ElasticsearchURL, Timeout: callTimeout})
	if err != nil {
		return err
	}
	defer closeIndex()
	wait, cancel := context.WithTimeout(ctx, migrateWait)
	defer cancel()
	if err := available(wait, index); !errors.Is(err, elastic.ErrNoIndex) {
		return err
	}
	lost, err := hasWritten(ctx, db)
	if err != nil {
		return err
	}
	if lost {
		log.Warn("the index was lost and begins empty; search rebuild fills it from payment's orders")
	}
	return index.Bootstrap(ctx)
}

// available asks until Elasticsearch answers, and returns what it says of the index.
func available(ctx context.Context, index *elastic.Index) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		err := index.Check(ctx)
		if !errors.Is(err, elastic.ErrDown) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func hasWritten(ctx context.Context, db *gorm.DB) (some bool, err error) {
	err = db.WithContext(ctx).Raw("SELECT EXISTS (SELECT FROM t_order_search_projection)").Scan(&some).Error
	if err != nil {
		return false, fmt.Errorf("looking for what was written: %w", err)
	}
	return some, nil
}
