// Package search keeps one document per order in Elasticsearch, as of the newest event that it has seen. The document
// is written with the order's version as its own, so an older event cannot replace a newer one, in whatever order they
// come. After the write one transaction records the event and the last applied version; a crash between the two makes
// the write happen again, which changes nothing.
//
//	serve.go    the process, from configuration to shutdown     handler.go  what an event does
//	document.go what is in the index                            api.go      what people may search
//	schema.go   the tables and the index                        agree.go    what reconciliation may see
//	source.go   what payment, the owner, says of an order       rebuild.go  the index built anew from its source
//
// Nothing is ever deleted: a cancelled order is an ordinary document.
package search

import (
	"context"
	"time"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/elastic"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
)

// Group is the consumer group's name, in Kafka and in the consume log. Under a new name all of history is handled again.
const Group = "search"

// callTimeout bounds one attempt at Elasticsearch. Three of them stay within the time that a handler has.
const callTimeout = 2 * time.Second

type config struct {
	service.Base
	consumer.Settings
	DatabaseURL      string `env:"DATABASE_URL,required,notEmpty"`
	ElasticsearchURL string `env:"ELASTICSEARCH_URL,required,notEmpty"`
	HTTPAddr         string `env:"HTTP_ADDR"`
}

// Serve is the subcommand `search serve`: it consumes events and answers the API until ctx ends. It starts without
// Elasticsearch too, is not ready then, and goes on when it is there.
func Serve(ctx context.Context, env service.Env) error {
	cfg := config{HTTPAddr: "127.0.0.1:8084", Base: service.Base{OpsAddr: "127.0.0.1:9084"}}
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	p, err := service.Start(ctx, Group, cfg.Base)
	if err != nil {
		return err
	}
	db, err := postgres.Open(ctx, cfg.DatabaseURL, Group, postgres.WithTracer(p.Tracer))
	if err != nil {
		return err
	}
	p.Close(func() { postgres.Close(db) })
	index, closeIndex, err := openIndex(elastic.Config{URL: cfg.ElasticsearchURL, Timeout: callTimeout, Tracer: p.Tracer})
	if err != nil {
		return err
	}
	p.Close(closeIndex)
	p.Ready("elasticsearch", index.Check)
	pr := newProjection(db, index, newSource(cfg.SourceURL, cfg.SourceToken, p.Tracer), p.Metrics)
	err = consumer.Run(p, consumer.Config{
		Settings: cfg.Settings, Group: Group, DB: db, Effects: pr.effects,
		SkipDead: event.Types(), // each later event carries the whole order
	}, consumer.Outside(pr.write).Then(pr.record))
	if err != nil {
		return err
	}
	if err := p.Serve("api", cfg.HTTPAddr, routes(index, p.Log)); err != nil {
		return err
	}
	return p.Wait()
}
