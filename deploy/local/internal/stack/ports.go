package stack

import (
	"fmt"
	"io"

	"example.com/paycast/shared/embedded"
)

// ports are the TCP ports of 127.0.0.1 that this stack uses. They stay claimed while their processes are down, so that
// a process that is killed and started again finds its port free.
type ports struct {
	claims []io.Closer
}

// take claims the preferred port (0 for none), or a free one when that is in use or claimed.
func (p *ports) take(preferred int) (int, error) {
	if preferred != 0 {
		if claim, err := embedded.ClaimPort(preferred); err == nil {
			p.claims = append(p.claims, claim)
			return preferred, nil
		}
	}
	port, claim, err := embedded.ClaimFreePort()
	if err != nil {
		return 0, err
	}
	p.claims = append(p.claims, claim)
	return port, nil
}

func (p *ports) release() {
	for _, claim := range p.claims {
		_ = claim.Close() // it goes with this process at the latest
	}
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
func httpURL(port int) string { return "http://" + address(port) }
