package main

import (
	"context"

	"example.com/paycast/deploy/local/internal/compose"
	"example.com/paycast/shared/service"
)

// The one-shot jobs of the Compose project. They read the environment as every service does, NAME_FILE included.

type secretsCommand struct {
	Root string `arg:"" help:"The folder that holds one mounted volume per reader."`
}

// Run is safe to repeat.
func (c secretsCommand) Run() error { return compose.Secrets(c.Root) }

type topicsCommand struct {
	Groups []string `arg:"" help:"The consumer groups."`
}

// Run is safe to repeat.
func (c topicsCommand) Run(ctx context.Context, env service.Env) error {
	return compose.Topics(ctx, env["KAFKA_BROKERS"], c.Groups)
}

type storyCommand struct {
	JSON bool `help:"Tell the story as JSON lines."`
}

// Run tells it once; each run has customers of its own.
func (c storyCommand) Run(ctx context.Context, env service.Env) error {
	for _, secret := range []string{"OPS_TOKEN", "PAYMENT_DATABASE_URL"} {
		value, _, err := env.Lookup(secret)
		if err != nil {
			return err
		}
		env[secret] = value
	}
	return compose.Story(ctx, env, c.JSON)
}
