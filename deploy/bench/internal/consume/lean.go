package consume

import (
	"context"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/postgres"
)

// lean is one transaction for each message, with nothing around it: no retry lane, no metrics, no spans. Any trouble
// ends it.
func lean(ctx context.Context, db *gorm.DB, brokers string, fn func(context.Context, *gorm.DB, event.Event) error) error {
	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{Brokers: brokers, ClientID: Group, Group: Group, Log: Log()})
	if err != nil {
		return err
	}
	defer func() { _ = subscriber.Close() }()
	messages, err := subscriber.Subscribe(ctx, event.Topic)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var running sync.WaitGroup // as many at once as there are partitions: the subscriber waits for each ack
	for m := range messages {
		running.Go(func() {
			if err := handle(ctx, db, m, fn); err != nil {
				fail(err)
				return
			}
			m.Ack()
		})
		if ctx.Err() != nil {
			break
		}
	}
	running.Wait()
	return context.Cause(ctx)
}

func handle(ctx context.Context, db *gorm.DB, m *message.Message, fn func(context.Context, *gorm.DB, event.Event) error) error {
	r, err := kafka.Record(m)
	if err != nil {
		return err
	}
	e, err := event.Decode(r)
	if err != nil {
		return err
	}
	return postgres.Transaction(ctx, db, func(tx *gorm.DB) error {
		_, err := inbox.Together(ctx, tx, []inbox.Delivery{{Group: Group, Event: e, Record: r}}, func(tx *gorm.DB, _ []inbox.Delivery) ([]inbox.Outcome, error) {
			return []inbox.Outcome{inbox.Applied}, fn(ctx, tx, e)
		})
		return err
	})
}
