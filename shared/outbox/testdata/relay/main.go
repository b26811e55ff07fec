// Command relay is a relay as a process of its own, for the tests that kill one. Its environment: DATABASE_URL,
// KAFKA_BROKERS, LEASE, DEADLINE and MARGIN; CRASH_ON, the id of an event whose send ends the process.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/outbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("the relay ended", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: os.Getenv("KAFKA_BROKERS"), ClientID: "relay"})
	if err != nil {
		return err
	}
	relay, err := outbox.NewRelay(outbox.Config{
		DatabaseURL: os.Getenv("DATABASE_URL"), Publisher: crasher{publisher, os.Getenv("CRASH_ON")}, Batch: 100, Poll: 100 * time.Millisecond,
		Lease: duration("LEASE"), Deadline: duration("DEADLINE"), Margin: duration("MARGIN"), RetryBase: 5 * time.Millisecond, RetryCap: 100 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	if err := relay.Run(ctx); err != nil {
		return err
	}
	return publisher.Close()
}

func duration(name string) time.Duration {
	d, err := time.ParseDuration(os.Getenv(name))
	if err != nil {
		panic(name + " is not a duration")
	}
	return d
}

// crasher ends the process in the middle of the send of one event.
type crasher struct {
	message.Publisher
	on string
}

func (c crasher) Publish(topic string, msgs ...*message.Message) error {
	for _, m := range msgs {
		if m.UUID == c.on {
			os.Exit(3)
		}
	}
	return c.Publisher.Publish(topic, msgs...)
}
