package consumer

import (
	"errors"
	"sync"
)

// errManyFailures holds a partition: it is the build or a dependency that fails, not the messages.
var errManyFailures = errors.New("many messages of different orders failed in a row")

// breaker tells a bad message from a bad build. Failures over different aggregates without one success between them
// are taken for the latter once there are limit of them: from then on a failure is not recorded, the partition waits,
// and the lane is not filled with the whole topic. Anything that is applied closes it, and so does a restart: whoever
// is sure that the messages are to blame restarts the process, and the next ones are recorded.
type breaker struct {
	limit int

	mu   sync.Mutex
	seen map[string]bool // aggregates that failed since the last success
}

// failed notes a failure of the aggregate and reports whether it may be recorded.
func (b *breaker) failed(aggregate string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.seen) >= b.limit {
		return false
	}
	if b.seen == nil {
		b.seen = map[string]bool{}
	}
	b.seen[aggregate] = true
	return true
}

func (b *breaker) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.seen)
}

func (b *breaker) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.seen) >= b.limit
}
