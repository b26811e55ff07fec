package sms

import (
	"fmt"
	"slices"
	"time"
)

// The modes of POST /sms.
const (
	ModeOK              = "ok"
	ModeSlow            = "slow"
	ModeError           = "error"
	ModeReject          = "reject"
	ModeRateLimited     = "rate_limited"
	ModeAcceptThenHang  = "accept_then_hang"
	ModeAcceptThenError = "accept_then_error"
	ModeAcceptThenReset = "accept_then_reset"
)

var modes = []string{
	ModeOK, ModeSlow, ModeError, ModeReject, ModeRateLimited, ModeAcceptThenHang, ModeAcceptThenError, ModeAcceptThenReset,
}

const maxDelayMS = 60_000

// Mode is how the provider behaves. Percent (1 to 100, 0 means 100) is the share of requests that it applies to; the
// others are ok. DelayMS is the wait of slow and accept_then_hang, and what rate_limited gives as Retry-After, rounded
// up to seconds; 0 means one second, and for accept_then_hang thirty.
type Mode struct {
	Mode    string `json:"mode"`
	DelayMS int    `json:"delay_ms"`
	Percent int    `json:"percent"`
}

func (m Mode) validate() error {
	switch {
	case !slices.Contains(modes, m.Mode):
		return fmt.Errorf("mode must be one of %v", modes)
	case m.DelayMS < 0 || m.DelayMS > maxDelayMS:
		return fmt.Errorf("delay_ms must be from 0 to %d", maxDelayMS)
	case m.Percent < 0 || m.Percent > 100:
		return fmt.Errorf("percent must be from 0 to 100; 0 means all")
	}
	return nil
}

func (m Mode) delay() time.Duration {
	switch {
	case m.DelayMS > 0:
		return time.Duration(m.DelayMS) * time.Millisecond
	case m.Mode == ModeAcceptThenHang:
		return 30 * time.Second
	default:
		return time.Second
	}
}

// hits reports whether the n-th request (from 1) is among the percentage. The hits are spread evenly, without chance,
// so that a test sees the same pattern each time.
func (m Mode) hits(n int) bool {
	percent := m.Percent
	if percent == 0 {
		percent = 100
	}
	return n*percent/100 != (n-1)*percent/100
}
