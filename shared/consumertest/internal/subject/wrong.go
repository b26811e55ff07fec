package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
)

// wrong handles a message the way it should not be done. Its error is a nack, unless the whole point is another one.
type wrong func(ctx context.Context, db *gorm.DB, m *message.Message, e event.Event) error

// wrongs are the faults that the suite must find, by name.
var wrongs = map[string]wrong{
	// A map in memory knows nothing after a restart and nothing of the other members.
	"dedupe-in-memory": func() wrong {
		var seen sync.Map
		return func(ctx context.Context, db *gorm.DB, _ *message.Message, e event.Event) error {
			if _, known := seen.Load(e.ID); known {
				return nil
			}
			err := slowly(db.WithContext(ctx), e)
			if err == nil {
				seen.Store(e.ID, true)
			}
			return err
		}
	}(),
	// Nothing at all against repetitions.
	"no-dedupe": func(ctx context.Context, db *gorm.DB, _ *message.Message, e event.Event) error {
		return slowly(db.WithContext(ctx), e)
	},
	// Watermill's Deduplicator remembers the message before the handler has succeeded: the retry looks like a duplicate.
	"watermills-deduplicator": func() wrong {
		repository, err := middleware.NewMapExpiringKeyRepository(time.Hour)
		if err != nil {
			panic(err) // an hour is valid
		}
		dedupe := middleware.Deduplicator{KeyFactory: middleware.NewMessageHasherSHA256(1 << 20), Repository: repository}
		return func(ctx context.Context, db *gorm.DB, m *message.Message, e event.Event) error {
			_, err := dedupe.Middleware(func(*message.Message) ([]*message.Message, error) {
				return nil, slowly(db.WithContext(ctx), e)
			})(m)
			return err
		}
	}(),
	// Two deliveries both look, both find nothing, and both act.
	"look-then-insert": func(ctx context.Context, db *gorm.DB, m *message.Message, e event.Event) error {
		return postgres.Transaction(ctx, db, func(tx *gorm.DB) error {
			if known(tx, e) {
				return nil
			}
			if err := slowly(tx, e); err != nil {
				return err
			}
			_, err := mark(tx, m, e)
			return err
		})
	},
	// What is acked before the commit is lost with the process.
	"ack-before-commit": func(ctx context.Context, db *gorm.DB, m *message.Message, e event.Event) error {
		m.Ack()
		return once(ctx, db, m, e)
	},
	// The mark is committed first: when the effect fails, the redelivery finds the mark.
	"mark-before-effect": func(ctx context.Context, db *gorm.DB, m *message.Message, e event.Event) error {
		if mine, err := mark(db.WithContext(ctx), m, e); !mine || err != nil {
			return err
		}
		return slowly(db.WithContext(ctx), e)
	},
	// The effect is committed by itself: when the mark fails, the redelivery makes another one.
	"effect-outside-the-transaction": func(ctx context.Context, db *gorm.DB, m *message.Message, e event.Event) error {
		if known(db.WithContext(ctx), e) {
			return nil
		}
		if err := slowly(db.WithContext(ctx), e); err != nil {
			return err
		}
		_, err := mark(db.WithContext(ctx), m, e)
		return err
	},
	// Whatever goes wrong is logged nowhere and acked.
	"swallow-and-ack": func(ctx context.Context, db *gorm.DB, m *message.Message, e event.Event) error {
		_ = once(ctx, db, m, e) // this is the fault
		return nil
	},
	// The effect is single, but every failure comes again at once, for ever, and blocks the partition.
	"nack-for-ever": func(ctx context.Context, db *gorm.DB, m *message.Message, e event.Event) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("panic: %v", v)
			}
		}()
		return once(ctx, db, m, e)
	},
	// A panic ends the process, and every process after it.
	"no-recover": once,
	// What is optional is taken for granted.
	"takes-the-shape-for-granted": func(ctx context.Context, db *gorm.DB, m *message.Message, e event.Event) error {
		var o event.Order
		if err := json.Unmarshal(e.Payload, &o); err != nil || o.PaidAt.IsZero() {
			return nil
		}
		return once(ctx, db, m, e)
	},
	// What a later producer adds is taken for a mistake.
	"no-unknown-fields": func(ctx context.Context, db *gorm.DB, m *message.Message, e event.Event) error {
		d := json.NewDecoder(bytes.NewReader(e.Payload))
		d.DisallowUnknownFields()
		if err := d.Decode(&event.Order{}); err != nil {
			return err
		}
		return once(ctx, db, m, e)
	},
	// A failure is a failure, whoever's it is: what comes in during an outage is parked as soon as there is a place for it.
	"counts-an-outage": func() wrong {
		var failed sync.Map
		return func(ctx context.Context, db *gorm.DB, m *message.Message, e event.Event) error {
			if why, ok := failed.Load(e.ID); ok {
				return park(ctx, db, m, e, why.(error))
			}
			err := once(ctx, db, m, e)
			if err != nil {
				failed.Store(e.ID, err)
			}
			return err
		}
	}(),
	// A dead letter for whatever the reason was: an outage, and the end of the process, which cancels the context.
	"park-on-any-error": func(ctx context.Context, db *gorm.DB, m *message.Message, e event.Event) error {
		err := once(ctx, db, m, e)
		if err == nil {
			return nil
		}
		return park(context.WithoutCancel(ctx), db, m, e, err)
	},
	// The key alone decides, so another fact under the same id passes for a repetition. Everything else is right.
	"no-request-hash": once,
}

// once has log and effect in one transaction, and nothing else that a consumer needs.
func once(ctx context.Context, db *gorm.DB, m *message.Message, e event.Event) error {
	return postgres.Transaction(ctx, db, func(tx *gorm.DB) error {
		if mine, err := mark(tx, m, e); !mine || err != nil {
			return err
		}
		return slowly(tx, e)
	})
}

// slowly takes long enough that a signal or a kill finds something under way.
func slowly(db *gorm.DB, e event.Event) error {
	if err := look(e); err != nil {
		return err
	}
	if err := db.Exec("SELECT pg_sleep(0.02)").Error; err != nil {
		return err
	}
	return effect(db, e)
}

func known(db *gorm.DB, e event.Event) bool {
	var n int64
	db.Raw("SELECT count(*) FROM t_message_consume WHERE event_id = ?", e.ID).Scan(&n)
	return n > 0
}

func mark(db *gorm.DB, m *message.Message, e event.Event) (bool, error) {
	r, err := kafka.Record(m)
	if err != nil {
		return false, err
	}
	result := db.Exec(`INSERT INTO t_message_consume (consumer_group, event_id, event_type, aggregate_id, aggregate_version,
		request_hash, status, outcome, topic, partition, "offset") VALUES (?, ?, ?, ?, ?, ?, 'SUCCESS', 'applied', ?, ?, ?)
		ON CONFLICT DO NOTHING`, group, e.ID, e.Type, e.AggregateID, e.AggregateVersion, e.Hash(), r.Topic, r.Partition, r.Offset)
	return result.RowsAffected == 1, result.Error
}

func park(ctx context.Context, db *gorm.DB, m *message.Message, e event.Event, why error) error {
	r, err := kafka.Record(m)
	if err != nil {
		return err
	}
	return postgres.Transaction(ctx, db, func(tx *gorm.DB) error {
		return inbox.Park(ctx, tx, inbox.Delivery{Group: group, Owner: group, Event: e, Record: r},
			inbox.Trouble{Class: inbox.ClassTransient, Text: why.Error()})
	})
}

// safeDefaults are those of shared/kafka: they are not what is wrong.
func safeDefaults(log *slog.Logger, cfg config) (message.Subscriber, error) {
	return kafka.NewSubscriber(kafka.SubscriberConfig{Brokers: cfg.Brokers, ClientID: group, Group: group, Session: cfg.Session, Log: log})
}

// watermillsDefaults begin a new group at the newest offset.
func watermillsDefaults(log *slog.Logger, cfg config) (message.Subscriber, error) {
	client := wkafka.DefaultSaramaSubscriberConfig()
	client.Version = sarama.V3_6_0_0
	return wkafka.NewSubscriber(wkafka.SubscriberConfig{
		Brokers: kafka.BrokerList(cfg.Brokers), ConsumerGroup: group, Unmarshaler: unmarshaler{}, OverwriteSaramaConfig: client,
	}, kafka.Logger(log))
}

type unmarshaler struct{}

func (unmarshaler) Unmarshal(m *sarama.ConsumerMessage) (*message.Message, error) {
	return kafka.Consumed(m), nil
}

// runWith is a consumer as one writes it in an afternoon. What cannot be decoded it nacks.
func (h wrong) runWith(subscriber func(*slog.Logger, config) (message.Subscriber, error)) func(context.Context, service.Env) error {
	return func(ctx context.Context, env service.Env) error {
		p, db, cfg, err := start(ctx, env)
		if err != nil {
			return err
		}
		var last answers
		p.Ready("consumer", last.ready)
		p.Go("consumer", func(ctx context.Context) error {
			s, err := subscriber(p.Log, cfg)
			if err != nil {
				return err
			}
			var topics sync.WaitGroup
			for _, topic := range []string{event.Topic, event.RedeliveryTopic(group)} {
				messages, err := s.Subscribe(ctx, topic)
				if err != nil {
					return errors.Join(err, s.Close())
				}
				topics.Go(func() {
					for m := range messages {
						topics.Go(func() { last.note(m, h.answer(ctx, db, m)) })
					}
				})
			}
			topics.Wait()
			return s.Close()
		})
		return p.Wait()
	}
}

func (h wrong) answer(ctx context.Context, db *gorm.DB, m *message.Message) error {
	r, err := kafka.Record(m)
	if err == nil {
		var e event.Event
		if e, err = event.Decode(r); err == nil {
			err = h(ctx, db, m, e)
		}
	}
	if err != nil {
		m.Nack()
		return err
	}
	m.Ack()
	return nil
}

// answers lets readiness say where the last message could not be handled: in this, no consumer is wrong.
type answers struct {
	mu  sync.Mutex
	bad error
}

func (a *answers) note(m *message.Message, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bad = err; err != nil {
		r, _ := kafka.Record(m) // without a record it has no place
		a.bad = fmt.Errorf("%s/%d: %w", r.Topic, r.Partition, err)
	}
}

func (a *answers) ready(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bad
}
