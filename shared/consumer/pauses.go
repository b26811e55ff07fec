package consumer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// pauses are the partitions and topics that cannot go on at the moment, each with the reason.
type pauses struct {
	mu      sync.Mutex
	reasons map[string]string
}

func (p *pauses) set(what string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reasons == nil {
		p.reasons = map[string]string{}
	}
	p.reasons[what] = scrub(err)
}

func (p *pauses) clear(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.reasons, what)
}

func (p *pauses) count() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(len(p.reasons))
}

// err names what is paused; nil when nothing is.
func (p *pauses) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.reasons) == 0 {
		return nil
	}
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(p.reasons)) {
		parts = append(parts, what+": "+p.reasons[what])
	}
	return fmt.Errorf("paused: %s", strings.Join(parts, "; "))
}
