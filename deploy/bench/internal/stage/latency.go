package stage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/paycast/deploy/bench/internal/design"
	"example.com/paycast/shared/kafka"
)

// IdleRun is a row of single events, each committed after the one before has arrived.
type IdleRun struct {
	Design  design.Design
	Samples int
	Pace    time.Duration // between two events, on average; uneven, so that no poll is in step with it
	Poll    time.Duration // of the relay; 0 is its default
	Unwoken bool          // the relay is not told of commits and finds them by its poll
}

// Idle measures the time from a commit until a consumer has the record, on a system that does nothing else.
func (s *Stage) Idle(ctx context.Context, run IdleRun) (took []time.Duration, err error) {
	d := run.Design
	name, err := s.database(ctx, d, design.Rows{N: 1, Keys: 1})
	if err != nil {
		return nil, err
	}
	defer func() {
		if dropErr := s.drop(context.WithoutCancel(ctx), name); err == nil {
			err = dropErr
		}
	}()
	b, err := s.broker(ctx, "", 0)
	if err != nil {
		return nil, err
	}
	defer b.close()
	relay, err := s.process(ctx, "relay", d.Name, "-database", s.url(name), "-brokers", b.addr, "-poll", run.Poll.String())
	if err != nil {
		return nil, err
	}
	defer relay.kill()
	if err := relay.tell("go"); err != nil {
		return nil, err
	}
	app, err := d.Append(ctx, s.url(name), !run.Unwoken)
	if err != nil {
		return nil, err
	}
	defer app.Close()

	arrivals := arrivals{at: map[string]time.Time{}}
	reader, err := kgo.NewClient(kgo.SeedBrokers(kafka.BrokerList(b.addr)...), kgo.ConsumeTopics(design.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	var reading sync.WaitGroup
	reading.Go(func() { arrivals.read(reader) })
	defer reading.Wait()
	defer reader.Close()

	const unmeasured = 5 // connections are made, statements prepared
	for i := range run.Samples + unmeasured {
		e := design.Event(fmt.Sprintf("I-%06d", i), 1, i)
		if err := app.Append(ctx, e); err != nil {
			return nil, err
		}
		committed := time.Now()
		at, err := arrivals.await(ctx, e.ID)
		if err != nil {
			return nil, fmt.Errorf("%w; the relay wrote:\n%s", err, relay.words())
		}
		if i >= unmeasured {
			took = append(took, max(0, at.Sub(committed)))
		}
		time.Sleep(run.Pace/2 + rand.N(run.Pace))
	}
	return took, nil
}

type arrivals struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (a *arrivals) read(reader *kgo.Client) {
	for {
		fetched := reader.PollFetches(context.Background())
		if fetched.IsClientClosed() {
			return
		}
		now := time.Now()
		a.mu.Lock()
		fetched.EachRecord(func(r *kgo.Record) { a.at[header(r, "ce_id")] = now })
		a.mu.Unlock()
	}
}

func (a *arrivals) await(ctx context.Context, id string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		a.mu.Lock()
		at, ok := a.at[id]
		a.mu.Unlock()
		if ok {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return at, fmt.Errorf("an event has not arrived: %w", ctx.Err())
		case <-time.After(500 * time.Microsecond):
		}
	}
}
