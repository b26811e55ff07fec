//go:build verify

package outbox

import (
	"testing"
	"time"
)

func TestRelayKilledEveryTwoSecondsForTwoMinutesParksNothingAndDeliversAll(t *testing.T) {
	setup(t).killed(2*time.Second, 60)
}
