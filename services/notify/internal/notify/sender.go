package notify

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"gorm.io/gorm"

	"example.com/paycast/shared/lease"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/telemetry"
)

// settleTimeout bounds a settle; it is part of the lease's margin.
const settleTimeout = time.Second

// sender carries commands out. Any number of senders may work on one table.
type sender struct {
	db        *gorm.DB
	bucket    *bucket
	provider  *provider
	contacts  contacts
	rule      lease.Rule
	owner     string
	workers   int // requests under way at once
	poll      time.Duration
	retryBase time.Duration
	retryCap  time.Duration
	metrics   *metrics
	log       *slog.Logger
	tracer    trace.Tracer
}

// Run sends what is due until ctx ends. Then it claims nothing more, gives back what was not begun, and returns when
// what was begun is settled.
func (s *sender) Run(ctx context.Context) error {
	slots := make(chan struct{}, s.workers)
	var work sync.WaitGroup
	defer work.Wait()
	var looked time.Time // for expired leases
	for ctx.Err() == nil {
		if time.Since(looked) >= s.poll {
			looked = time.Now()
			s.complain(ctx, s.takeOver(ctx))
		}
		if s.bucket.rate == 0 { // paused: nothing is claimed, so everything stays due
			sleep(ctx, s.poll)
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		claiming, done := s.rule.Claiming(ctx)
		c, found, err := s.claim(claiming)
		done()
		if !found {
			<-slots
			s.complain(ctx, err)
			sleep(ctx, s.poll)
			continue
		}
		work.Go(func() {
			defer func() { <-slots }()
			s.carryOut(ctx, c)
		})
	}
	return nil
}

// carryOut brings one claim to its settle. The settle is tried even during a shutdown; without it the command would be
// UNKNOWN after its lease although we know better.
func (s *sender) carryOut(stop context.Context, c claimed) {
	stop, span := s.tracer.Start(telemetry.WithTraceParent(stop, c.TraceParent), "send notification", trace.WithSpanKind(trace.SpanKindConsumer))
	defer span.End()
	v := s.work(stop, c)
	span.SetAttributes(telemetry.Result.String(string(v.status)))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(stop), settleTimeout)
	defer cancel()
	settled, err := s.settle(ctx, c, v)
	log := s.log.With("command_id", c.CommandID, "event_id", c.EventID, "order_no", c.OrderNo, "result", v.status, "code", v.code)
	switch {
	case err != nil:
		// The lease will run out, and whoever takes the command over asks before sending.
		log.Log(ctx, postgres.Severity(err), "a command could not be settled", "error", err)
	case !settled:
		s.metrics.fenced.Inc()
		log.WarnContext(ctx, "a command was taken over before it was settled")
	case v.notBegun:
		s.metrics.attempt(notBegun)
	case v.status == Failed:
		s.metrics.attempt(string(v.status))
		log.ErrorContext(ctx, "the provider refuses a message for good")
	default:
		s.metrics.attempt(string(v.status))
		log.InfoContext(ctx, "command carried out")
	}
}

// work does what a claim is for. stop ends waiting, never a request: one that is cut off is one more unknown outcome.
func (s *sender) work(stop context.Context, c claimed) verdict {
	ctx := context.WithoutCancel(stop)
	state := c.Was
	if state == Unknown {
		switch id, err := s.provider.ask(ctx, c.CommandID); {
		case err != nil:
			return verdict{status: Unknown, code: "ask_unanswered"}
		case id != "":
			return verdict{status: Sent, messageID: id}
		}
		state = Retry // now it is known that nothing was accepted
	}
	phone, code := s.contacts.phone(ctx, c.OrderNo)
	if code != "" {
		return verdict{status: Retry, code: code}
	}
	t, err := s.bucket.wait(stop, c.hold)
	if err != nil {
		back := verdict{status: state, notBegun: true}
		var none errNoToken
		if errors.As(err, &none) {
			back.after = none.wait
		} else {
			s.complain(stop, err)
		}
		return back
	}
	v := s.provider.send(ctx, t, c.CommandID, phone, c.Text)
	switch {
	case v.notBegun:
		v.status = state
	case v.askNow:
		return s.resolve(ctx, c, v)
	}
	return v
}

// resolve asks at once about a request that the provider answered with an error of its own: it may have accepted the
// message before it failed.
func (s *sender) resolve(ctx context.Context, c claimed, v verdict) verdict {
	id, err := s.provider.ask(ctx, c.CommandID)
	switch {
	case err != nil:
		return v
	case id != "":
		return verdict{status: Sent, messageID: id}
	default:
		v.status = Retry
		return v
	}
}

// complain logs what is wrong with the database; a shutdown is not.
func (s *sender) complain(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.log.Log(ctx, postgres.Severity(err), "the sender cannot go on for now", "error", err)
	}
}

// sleep reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
