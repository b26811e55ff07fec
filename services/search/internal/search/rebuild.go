package search

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"

	"example.com/paycast/shared/elastic"
	"example.com/paycast/shared/facts"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/telemetry"
)

// Rebuild is the subcommand `search rebuild`: a new index, filled from payment's orders as they are now, takes the old
// one's place. Readers and `search serve` go on meanwhile. Events that come later find their version there, or raise it.
func Rebuild(ctx context.Context, env service.Env) error {
	var cfg struct {
		DatabaseURL      string `env:"DATABASE_URL,required,notEmpty"`
		ElasticsearchURL string `env:"ELASTICSEARCH_URL,required,notEmpty"`
		PaymentOpsURL    string `env:"PAYMENT_OPS_URL,required,notEmpty"`
		OpsToken         string `env:"OPS_TOKEN,required,notEmpty"`
	}
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	log, err := telemetry.Logger(os.Stderr, Group, "info")
	if err != nil {
		return err
	}
	index, closeIndex, err := openIndex(elastic.Config{URL: cfg.ElasticsearchURL, Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	defer closeIndex()
	db, err := postgres.Open(ctx, cfg.DatabaseURL, Group+" rebuild")
	if err != nil {
		return err
	}
	defer postgres.Close(db)
	p := projection{db: db, source: source{ops.Client{BaseURL: cfg.PaymentOpsURL, Token: cfg.OpsToken}}}
	return alone(ctx, db, func() error {
		// Another mapping than ours is a reason to rebuild, and so is no index at all.
		if err := index.Bootstrap(ctx); err != nil && !errors.Is(err, elastic.ErrMapping) {
			return err
		}
		return index.Rebuild(ctx, func(ctx context.Context, target *elastic.Index) error {
			n, err := p.fill(ctx, target)
			log.InfoContext(ctx, "index filled", "orders", n, "complete", err == nil)
			return err
		})
	})
}

// Two rebuilds at once would drop each other's index. The lock belongs to the connection, which is held until fn is done,
// and so it is gone when the process is.
const lockRebuild = `SELECT pg_try_advisory_lock(hashtextextended('search rebuild', 0))`

var errRebuildRuns = errors.New("another rebuild is running")

func alone(ctx context.Context, db *gorm.DB, fn func() error) error {
	return db.WithContext(ctx).Connection(func(conn *gorm.DB) error {
		var locked bool
		if err := conn.Raw(lockRebuild).Scan(&locked).Error; err != nil {
			return fmt.Errorf("taking the rebuild's lock: %w", err)
		}
		if !locked {
			return errRebuildRuns
		}
		return fn()
	})
}

const (
	fillPage    = 500
	fillReaders = 8
)

// fill writes every order that payment has, with its version, and returns how many.
func (p projection) fill(ctx context.Context, target *elastic.Index) (n int, err error) {
	for after := ""; ; {
		var page facts.SourcePage
		query := url.Values{"after": {after}, "limit": {strconv.Itoa(fillPage)}}
		if err := p.source.payment.GetJSON(ctx, "/ops/facts", query, &page); err != nil {
			return n, fmt.Errorf("listing payment's orders: %w", err)
		}
		items, err := p.source.read(ctx, page.Orders)
		if err != nil {
			return n, err
		}
		for _, result := range target.Bulk(ctx, items) {
			if result.Err != nil {
				return n, result.Err
			}
			n++
		}
		if err := p.renew(ctx, items); err != nil {
			return n, err
		}
		if after = page.Next; after == "" {
			return n, nil
		}
	}
}

// A version that is written otherwise than the first time has another digest. The old one would call the new document damaged.
const renewDigests = `
UPDATE t_order_search_projection p SET digest = d.digest, updated_at = now()
FROM unnest(CAST(@orders AS text[]), CAST(@versions AS bigint[]), CAST(@digests AS text[])) AS d(order_no, version, digest)
WHERE p.order_no = d.order_no AND p.last_applied_version = d.version AND p.digest <> d.digest`

func (p projection) renew(ctx context.Context, items []elastic.Item) error {
	n := len(items)
	orders, versions, digests := make([]string, n), make([]int64, n), make([]string, n)
	for i, item := range items {
		orders[i], versions[i], digests[i] = item.ID, item.Version, item.Doc.(document).digest()
	}
	// A pointer: gorm would take a slice for a list of values.
	err := p.db.WithContext(ctx).Exec(renewDigests, map[string]any{"orders": &orders, "versions": &versions, "digests": &digests}).Error
	if err != nil {
		return fmt.Errorf("recording what was written: %w", err)
	}
	return nil
}

func (s source) read(ctx context.Context, orders []facts.Order) ([]elastic.Item, error) {
	items := make([]elastic.Item, len(orders))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fillReaders)
	for i, o := range orders {
		group.Go(func() error {
			d, err := s.order(ctx, o.OrderNo)
			if err != nil {
				return err
			}
			items[i] = elastic.Item{ID: d.OrderNo, Version: d.Version, Doc: d}
			return nil
		})
	}
	return items, group.Wait()
}
