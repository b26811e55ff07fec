package design

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/paycast/shared/event"
)

// forwarderTopic names Watermill's tables.
const forwarderTopic = "outbox"

// naive is what the documentation of Watermill's Forwarder leads to.
func naive() Design {
	return Design{
		Name: "naive", Label: "watermill-sql, defaults", Serial: true,
		Backlog: "watermill", Fill: fillWatermill, Append: newWatermillAppender, Done: watermillDone,
		Run: func(ctx context.Context, t Target) error {
			return runWatermill(ctx, t, sql.DefaultPostgreSQLSchema{}, wkafka.PublisherConfig{})
		},
	}
}

// tuned is naive with what its options offer, as safe as ours: larger reads, keys, all acknowledgements, idempotent.
func tuned() Design {
	return Design{
		Name: "tuned", Label: "watermill-sql, tuned", Serial: true,
		Backlog: "watermill", Fill: fillWatermill, Done: watermillDone,
		Run: func(ctx context.Context, t Target) error {
			return runWatermill(ctx, t, sql.DefaultPostgreSQLSchema{SubscribeBatchSize: 1000}, wkafka.PublisherConfig{
				OverwriteSaramaConfig: safeProducer(),
				Marshaler: wkafka.NewWithPartitioningMarshaler(func(_ string, m *message.Message) (string, error) {
					return m.Metadata.Get("ce_subject"), nil
				}),
			})
		},
	}
}

// safeProducer has the settings that make an accepted send durable and a retry harmless, as shared/kafka has them.
func safeProducer() *sarama.Config {
	c := wkafka.DefaultSaramaSyncPublisherConfig()
	c.Version = sarama.V3_6_0_0
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
	return c
}

const watermillDone = `select coalesce((select offset_acked from watermill_offsets_outbox), 0) >= last_value from watermill_outbox_offset_seq`

func runWatermill(ctx context.Context, t Target, schema sql.DefaultPostgreSQLSchema, publisher wkafka.PublisherConfig) error {
	pool, err := pgxpool.New(ctx, t.DatabaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	log := watermill.NewStdLogger(false, false)
	sub, err := watermillSubscriber(pool, schema)
	if err != nil {
		return err
	}
	publisher.Brokers = []string{t.Brokers}
	pub, err := wkafka.NewPublisher(publisher, log)
	if err != nil {
		return err
	}
	defer func() { _ = pub.Close() }()
	fwd, err := forwarder.NewForwarder(sub, pub, log, forwarder.Config{ForwarderTopic: forwarderTopic})
	if err != nil {
		return err
	}
	return fwd.Run(ctx)
}

func watermillSubscriber(pool *pgxpool.Pool, schema sql.DefaultPostgreSQLSchema) (*sql.Subscriber, error) {
	return sql.NewSubscriber(sql.BeginnerFromPgx(pool), sql.SubscriberConfig{
		SchemaAdapter: schema, OffsetsAdapter: sql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
	}, watermill.NopLogger{})
}

func fillWatermill(ctx context.Context, databaseURL string, rows Rows) error {
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	sub, err := watermillSubscriber(pool, sql.DefaultPostgreSQLSchema{})
	if err != nil {
		return err
	}
	if err := sub.SubscribeInitialize(forwarderTopic); err != nil {
		return err
	}
	// One statement, and so one transaction, for each of these.
	const together = 1000
	for from := 0; from < rows.N; from += together {
		var ms []*message.Message
		for i := from; i < min(from+together, rows.N); i++ {
			ms = append(ms, watermillMessage(rows.Event(i)))
		}
		if err := publishWatermill(sql.BeginnerFromPgx(pool), ms...); err != nil {
			return fmt.Errorf("filling Watermill's table: %w", err)
		}
	}
	_, err = pool.Exec(ctx, "vacuum analyze watermill_outbox")
	return err
}

func publishWatermill(db sql.ContextExecutor, ms ...*message.Message) error {
	pub, err := sql.NewPublisher(db, sql.PublisherConfig{SchemaAdapter: sql.DefaultPostgreSQLSchema{}}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	return forwarder.NewPublisher(pub, forwarder.PublisherConfig{ForwarderTopic: forwarderTopic}).Publish(Topic, ms...)
}

func watermillMessage(e event.Event) *message.Message {
	m := message.NewMessage(e.ID, e.Payload)
	for _, h := range e.Headers() {
		m.Metadata.Set(h.Key, string(h.Value))
	}
	return m
}

type watermillAppender struct{ pool *pgxpool.Pool }

func newWatermillAppender(ctx context.Context, databaseURL string, _ bool) (Appender, error) {
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	return watermillAppender{pool}, nil
}

func (a watermillAppender) Append(ctx context.Context, e event.Event) error {
	return pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		return publishWatermill(sql.TxFromPgx(tx), watermillMessage(e))
	})
}

func (a watermillAppender) Close() { a.pool.Close() }
