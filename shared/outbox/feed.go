package outbox

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/postgres"
)

// subscriber is the table as a Watermill Subscriber: the relay's own loop, ending with the subscription's context.
type subscriber struct{ r *Relay }

// Subscribe claims rows and delivers each as an enveloped message until ctx ends. Then it waits for the answers of what
// is being sent, settles, gives back the rest, and closes the channel. There is one table, so the topic means nothing.
func (s *subscriber) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		s.r.feed(ctx, out)
	}()
	return out, nil
}

// Close has nothing to do: the context of Subscribe ends a subscription.
func (s *subscriber) Close() error { return nil }

// feed claims batches and hands their chains to workers.
func (r *Relay) feed(ctx context.Context, out chan<- *message.Message) {
	work := make(chan chain)
	var workers sync.WaitGroup
	for range r.c.Sends {
		workers.Go(func() {
			for c := range work {
				c.send(ctx, out)
			}
		})
	}
	f := feeder{Relay: r, work: work, slots: make(chan struct{}, r.c.Batches)}
	failures := 0
	for ctx.Err() == nil {
		again, err := f.round(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			r.c.Log.Log(ctx, postgres.Severity(err), "the outbox cannot be read; trying again", "error", err)
			pause(ctx, jitter(r.c.RetryBase, gateCap, failures))
			failures++
		case err == nil:
			failures = 0
			r.alive.beat()
			if !again {
				f.idle(ctx)
			}
		}
	}
	f.drain()
	close(work)
	workers.Wait()
}

// feeder is the state of one feed. A slot is a batch in flight.
type feeder struct {
	*Relay
	work  chan chain
	slots chan struct{}

	lanes   []lane    // what the last look found
	looked  time.Time // when
	allLeft bool      // the last claim of each of them left rows
	vain    int       // rounds since one took rows

	vainHold time.Time // when the last hold found nothing to take out of the way
}

// round claims once from each lane that is due. again says that it is worth another round at once.
func (f *feeder) round(ctx context.Context) (again bool, err error) {
	one := f.gate.pass(ctx)
	if ctx.Err() != nil {
		return false, nil
	}
	// Where a claim took rows and left others that are due, there is no need to look for some. Looking costs more than
	// claiming while the index's head is full of what was sent, but leases, other lanes and earlier rows must not wait for the
	// end of a backlog.
	if one || !f.allLeft || f.vain > 0 || f.stale.Swap(false) || time.Since(f.looked) > f.c.Poll {
		if err = f.look(ctx); err != nil {
			return false, err
		}
	}
	if len(f.lanes) == 0 {
		if one {
			f.reach(ctx)
		}
		f.vain = 0
		return false, nil
	}
	f.allLeft = true
	f.vain++
	for i := range f.lanes {
		l := &f.lanes[i]
		if l.paused {
			mine, err := f.claimProbe(ctx, l.destination)
			if err != nil {
				return false, err
			}
			if !mine {
				continue
			}
		}
		goOn, err := f.take(ctx, l, one || l.alone || l.paused)
		if err != nil {
			return false, err
		}
		again = again || goOn
		f.allLeft = f.allLeft && l.left
		if one {
			break // the gate opens for one row, not for one per lane
		}
	}
	return again, nil
}

// reach tries Kafka without a row. The rows of an outage may have gone out through another relay, or wait for their time;
// one with nothing to send would say for ever that Kafka cannot be reached. A publish of no message connects and sends nothing.
func (f *feeder) reach(ctx context.Context) {
	answer := make(chan error, 1)
	go func() { answer <- f.c.Publisher.Publish(event.Topic) }()
	ctx, cancel := context.WithTimeout(ctx, f.c.Deadline)
	defer cancel()
	select {
	case err := <-answer:
		if err == nil {
			f.gate.succeed()
		} else {
			f.gate.fail()
		}
	case <-ctx.Done():
		f.gate.fail()
	}
}

// look asks which lanes are due, and ends claims whose lease has run out.
func (f *feeder) look(ctx context.Context) error {
	ctx, cancel := f.answerWithin(ctx)
	defer cancel()
	f.looked = time.Now()
	f.allLeft = false // until the next round has claimed
	lanes, expired, err := f.due(ctx)
	if f.lanes = lanes; err != nil || !expired {
		return err
	}
	return f.takeOver(ctx)
}

// lockNotAvailable is the SQLSTATE of a lock_timeout.
const lockNotAvailable = "55P03"

// take claims a batch and sets it going. single claims one row and returns when it is settled, with nothing else in
// flight from this relay: a row that is suspected of crashing relays, or a probe, must stand for itself. again says that
// the next claim may find more; what waits for its key in other hands will not be free in the next moment.
func (f *feeder) take(ctx context.Context, l *lane, single bool) (again bool, err error) {
	if !f.acquire(ctx, 1) {
		return false, nil
	}
	n, slots := f.c.Batch, 1
	if single {
		n = 1
	}
	defer func() { f.release(slots) }()
	hold := f.c.rule().Begin(f.c.Owner)
	claiming, done := f.claiming(ctx)
	defer done()
	got, err := f.claim(claiming, hold, l, n)
	if postgres.Code(err) == lockNotAvailable {
		f.c.Log.Warn("another claim of this destination takes long; trying again", "destination", l.destination, "error", err)
		l.left = true
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// A window that is full of waiting rows hides others. Rows that wait for a send of a few milliseconds are left alone.
	held := 0
	if got.waiting > len(got.ids) && time.Since(f.vainHold) > 100*time.Millisecond {
		if held, err = f.holdBack(claiming, *l); err != nil { // what is claimed is sent all the same
			f.c.Log.Log(ctx, postgres.Severity(err), "outbox rows that wait are in the claim's way", "destination", l.destination, "error", err)
		}
		if held == 0 {
			f.vainHold = time.Now()
		}
	}
	if len(got.ids) == 0 {
		return held > 0, nil
	}
	f.vain = 0
	again = held > 0 || got.waiting == 0
	b := &batch{r: f.Relay, lane: *l, hold: hold, results: make(chan outcome, len(got.ids))}
	if single {
		if f.acquire(ctx, f.c.Batches-1) {
			slots = f.c.Batches
		}
		b.run(ctx, got, f.work)
		return again, nil
	}
	slots = 0 // the batch gives its slot back itself
	go func() {
		defer f.release(1)
		b.run(ctx, got, f.work)
	}()
	return again, nil
}

func (f *feeder) acquire(ctx context.Context, n int) bool {
	for i := range n {
		select {
		case f.slots <- struct{}{}:
		case <-ctx.Done():
			f.release(i)
			return false
		}
	}
	return true
}

func (f *feeder) release(n int) {
	for range n {
		<-f.slots
	}
}

// drain waits for the batches in flight.
func (f *feeder) drain() { f.acquire(context.Background(), f.c.Batches) }

// idle waits until there may be something to do: a commit told of itself, a settle freed rows, or the poll is due. The
// first two may be lost; the poll is the guarantee. Where rows are due behind others that another relay has, no word will
// come of their settle: it tries again soon, and less and less soon the more often that was in vain.
func (f *feeder) idle(ctx context.Context) {
	wait := f.c.Poll
	if f.allLeft {
		wait = min(wait, settleEvery<<min(f.vain, 10))
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-f.wake:
	case <-t.C:
	case <-ctx.Done():
	}
}

// nudge wakes the feed. Any number of nudges before it looks are one.
func (r *Relay) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// claiming is the context for a claim or its reading: both are brought to their end when ctx ends, and wait for no lost answer.
func (r *Relay) claiming(ctx context.Context) (claiming context.Context, done context.CancelFunc) {
	claiming, end := r.c.rule().Claiming(ctx)
	claiming, cancel := r.answerWithin(claiming)
	return claiming, func() { cancel(); end() }
}

// answerWithin bounds a statement. The server ends one after a minute; where even that is not heard, the connection leads
// nowhere, behind a firewall that has forgotten it for example, and TCP alone would wait for a quarter of an hour.
func (r *Relay) answerWithin(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.silence)
}
