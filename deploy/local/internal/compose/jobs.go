package compose

import (
	"context"
	"fmt"
	"os"
	"strings"

	"example.com/paycast/deploy/local/internal/console"
	"example.com/paycast/deploy/local/internal/demo"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
)

// Topics creates the topics: the one of all events and each group's for redeliveries.
func Topics(ctx context.Context, brokers string, groups []string) error {
	topics := []string{event.Topic}
	for _, g := range groups {
		topics = append(topics, event.RedeliveryTopic(g))
	}
	if err := kafka.EnsureTopics(ctx, brokers, topics...); err != nil {
		return err
	}
	fmt.Printf("%s: %d partitions each\n", strings.Join(topics, ", "), event.Partitions)
	return nil
}

// Story tells what can be told from inside: nobody is killed, everything is checked. vars are the names of the local
// stack's env file.
func Story(ctx context.Context, vars map[string]string, asJSON bool) error {
	out := demo.NewTeller(console.New(os.Stdout), asJSON)
	if err := demo.TellPeacefully(ctx, out, vars); err != nil {
		return err
	}
	out.Result("agree")
	return nil
}
