package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/service"
)

// Config is a consumer's, with the sizes of its batches.
type Config struct {
	consumer.Config
	Size   int // messages in one transaction, at most; 0 means 200
	Window int // unacked messages of a partition that are read ahead; 0 means twice Size
}

// drain is how long running batches may go on after the signal. It lies within the time that service.Process waits.
const drain = 12 * time.Second

// Run is consumer.Run with many messages in one transaction. The handler is consumer.InTransaction, which is called for
// each event, or consumer.Batched, which gets all of them; any other is refused. A batch is what is there: a message is
// never held back until others have come.
func Run(p *service.Process, cfg Config, h consumer.Handler) error {
	if cfg.Size == 0 {
		cfg.Size = 200
	}
	if cfg.Window == 0 {
		cfg.Window = 2 * cfg.Size
	}
	if cfg.Size < 1 || cfg.Window < cfg.Size {
		return errors.New("batch: the size must be positive and the window no smaller")
	}
	return consumer.Serve(p, cfg.Config, cfg.Size, h, func(ctx context.Context, m consumer.Member) error {
		return run(ctx, m, cfg)
	})
}

func run(ctx context.Context, m consumer.Member, cfg Config) error {
	subscriber, err := NewSubscriber(m.Subscriber(), cfg.Window)
	if err != nil {
		return fmt.Errorf("making the subscriber: %w", err)
	}
	// The work has a context of its own: the signal must not cut off a batch that is about to commit.
	work, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()
	var topics, running sync.WaitGroup
	for _, topic := range m.Topics() {
		topics.Go(func() {
			lines := map[int32]*line{}
			for msg := range m.Messages(ctx, work, subscriber, topic) {
				r, err := kafka.Record(msg)
				if err != nil {
					continue // not from this package's Subscriber, which is impossible here
				}
				l := lines[r.Partition]
				if l == nil {
					l = &line{Member: m, size: cfg.Size, name: fmt.Sprintf("%s/%d", r.Topic, r.Partition), some: make(chan struct{}, 1)}
					lines[r.Partition] = l
					running.Go(func() { l.work(ctx, work) })
				}
				l.put(item{msg, r})
			}
		})
	}
	topics.Wait()
	timer := time.AfterFunc(drain, cutOff)
	running.Wait()
	timer.Stop()
	return subscriber.Close() // commits the offsets of what was acked
}

// item is a message with its record.
type item struct {
	*message.Message
	record event.Record
}

// lost reports that the message is no longer this member's, or is settled.
func (i item) lost() bool { return i.Context().Err() != nil }
