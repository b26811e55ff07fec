package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"example.com/paycast/deploy/local/internal/console"
	"example.com/paycast/deploy/local/internal/stack"
)

type upCommand struct {
	directory
	stackFlags
	Env string `help:"Write all addresses and secrets to this file, complete, when everything is ready." type:"path" placeholder:"FILE"`
}

// Run stays until the signal. What then does not end in order is an error.
func (c upCommand) Run(ctx context.Context) error {
	cfg, err := c.config(c.Dir)
	if err != nil {
		return err
	}
	out := console.New(os.Stdout)
	cfg.Report = func(s stack.Step) { out.Step(s.Name, s.Detail, s.Took, s.Pending) }
	cfg.Deaths, cfg.Durable = os.Stderr, true
	files := []string{filepath.Join(c.Dir, "env")}
	if c.Env != "" {
		files = append(files, c.Env)
	}
	for _, file := range files {
		_ = os.Remove(file) // one that a crash left would look as if we were ready
	}
	begin := time.Now()
	s, err := stack.Up(ctx, cfg)
	if err != nil {
		return err
	}
	for _, file := range files {
		err = errors.Join(err, s.WriteEnv(file))
	}
	if err != nil {
		return errors.Join(err, s.Down())
	}
	out.Line("")
	out.Box(addresses(s, time.Since(begin))...)
	out.Line(tryThis, files[0], os.Args[0])
	<-ctx.Done()
	out.Line("\nstopping")
	err = s.Down()
	for _, file := range files {
		_ = os.Remove(file) // its addresses are nobody's now
	}
	return err
}

// addresses are those of everything that answers.
func addresses(s *stack.Stack, took time.Duration) []string {
	lines := []string{fmt.Sprintf("paycast is up after %.1f s, on %s", took.Seconds(), s.Dir()), ""}
	for _, a := range s.Addresses() {
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%-14s %-36s %s", a.Name, a.Main, a.Ops), " "))
	}
	return lines
}

// tryThis shows the way of one payment by hand.
const tryThis = `
Try this in another terminal:

  set -a; . %s; set +a
  ORDER=$(curl -s $PAYMENT_URL/orders -H 'Idempotency-Key: try-1' -H 'Content-Type: application/json' \
    -d '{"user_id":"ada","phone":"+31600000001","title":"A book","amount":2990,"currency":"EUR"}' | grep -o '"order_no":"[^"]*"' | cut -d'"' -f4)
  curl -s $WORLD_URL/pay -d "{\"order_no\":\"$ORDER\",\"amount\":2990,\"currency\":\"EUR\",\"copies\":5,\"parallel\":5}"
  curl -s $POINTS_URL/accounts/ada
  curl -s "$NOTIFY_URL/notifications?order_no=$ORDER"; curl -s $SMS_URL/messages
  curl -s "$SEARCH_URL/orders?user_id=ada"
  curl -s -X POST $RECONCILE_URL/runs -H "Authorization: Bearer $OPS_TOKEN"

  %s ps | kill points | start points | pause kafka | resume kafka      Ctrl-C here ends everything
`
