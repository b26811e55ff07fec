package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"example.com/paycast/deploy/local/internal/console"
	"example.com/paycast/deploy/local/internal/demo"
	"example.com/paycast/deploy/local/internal/stack"
)

type demoCommand struct {
	stackFlags
	JSON bool   `help:"Tell the story as JSON lines."`
	Dir  string `help:"Keep data and logs in this new directory; default: one that is removed at the end." type:"path" placeholder:"DIR"`
}

// impatient are the times of a system that shows a takeover within seconds. The caller's environment is stronger.
var impatient = map[string]string{
	"OUTBOX_LEASE":          "3s",
	"OUTBOX_SEND_DEADLINE":  "1500ms",
	"OUTBOX_SETTLE_MARGIN":  "500ms",
	"OUTBOX_POLL":           "200ms",
	"KAFKA_SESSION_TIMEOUT": "2s",
}

// Run tells the story once. Its last line is "agree", or the error says what does not.
func (c demoCommand) Run(ctx context.Context) (err error) {
	dir := c.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "paycast-demo-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
	} else if files, _ := os.ReadDir(dir); len(files) > 0 { // not there yet is as good
		return fmt.Errorf("%s is not empty: the demo counts everything that it finds, so it needs a new directory", dir)
	}
	cfg, err := c.config(dir)
	if err != nil {
		return err
	}
	out := demo.NewTeller(console.New(os.Stdout), c.JSON)
	var deaths obituaries
	cfg.Defaults, cfg.Deaths = impatient, &deaths
	cfg.Report = func(s stack.Step) { out.Step(s.Name, s.Detail, s.Took, s.Pending) }
	out.Chapter("Everything comes up on this machine: " + cfg.Parts())
	s, err := stack.Up(ctx, cfg)
	if err != nil {
		return err
	}
	err = errors.Join(demo.Tell(ctx, out, s), deaths.err())
	if err = s.DownAfter(ctx, err); err == nil {
		out.Result("agree")
	}
	return err
}

// obituaries are of processes that nobody has killed. The story ends badly when there is one.
type obituaries struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *obituaries) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *obituaries) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.text.Len() == 0 {
		return nil
	}
	return fmt.Errorf("a process died: %s", strings.TrimSpace(o.text.String()))
}
