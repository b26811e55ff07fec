package outbox

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// gateCap bounds the pause between two tries to reach Kafka: an outage is noticed as over within this time.
const gateCap = 5 * time.Second

// gate stops claiming while no broker can be reached, so that an outage costs one row's try per pause and touches no
// other row. Closed, it opens for one row at a time until one is accepted, or until Kafka answers while no row is due.
type gate struct {
	base, cap time.Duration

	mu       sync.Mutex
	failures int
	until    time.Time
	first    time.Time
}

// fail closes the gate. Failures that come while it is closed belong to the same burst and do not lengthen the pause.
func (g *gate) fail() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if now.Before(g.until) {
		return
	}
	if g.failures == 0 {
		g.first = now
	}
	g.until = now.Add(jitter(g.base, g.cap, g.failures))
	g.failures++
}

// succeed opens the gate.
func (g *gate) succeed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failures, g.until = 0, time.Time{}
}

// pass waits until the gate lets work through; one says that it is for a single row.
func (g *gate) pass(ctx context.Context) (one bool) {
	g.mu.Lock()
	wait, one := time.Until(g.until), g.failures > 0
	g.mu.Unlock()
	pause(ctx, wait)
	return one
}

// failing is how long Kafka has been out of reach; 0 when it is not.
func (g *gate) failing() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failures == 0 {
		return 0
	}
	return time.Since(g.first)
}

// jitter is a backoff with full jitter: anything between nothing and the doubled base, capped. Equal pauses would keep
// several relays in step.
func jitter(base, limit time.Duration, failures int) time.Duration {
	d := limit
	if failures < 20 {
		d = min(limit, base<<failures)
	}
	return rand.N(d + 1)
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// pulse remembers when something last went well.
type pulse struct{ at atomic.Int64 }

func (p *pulse) beat() { p.at.Store(time.Now().UnixNano()) }

// since is false before the first beat.
func (p *pulse) since() (time.Duration, bool) {
	at := p.at.Load()
	return time.Since(time.Unix(0, at)), at != 0
}
