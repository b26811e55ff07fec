package stack

import (
	"context"
	"fmt"
	"net"
	"runtime"

	"example.com/paycast/shared/embedded"
)

// ports are the TCP ports of 127.0.0.1 that this stack uses. They stay claimed while their processes are down, so that
// a process that is killed and started again finds its port free.
type ports struct {
	claims []net.Listener
}

// take claims the preferred port, or a free one when that is in use or claimed.
func (p *ports) take(preferred int) (int, error) {
	for range 100 {
		if preferred != 0 && p.claim(preferred) {
			return preferred, nil
		}
		var err error
		if preferred, err = embedded.FreePort(); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("no port of 127.0.0.1 can be had")
}

// claim shuts out other stacks that are starting now: between looking at a port and listening on it there is a gap. The
// claim is an abstract socket, which the kernel keeps in the same network namespace as the ports and drops with us.
func (p *ports) claim(port int) bool {
	ctx := context.Background()
	var lc net.ListenConfig
	if runtime.GOOS == "linux" {
		c, err := lc.Listen(ctx, "unix", fmt.Sprintf("@paycast-port-%d", port))
		if err != nil {
			return false
		}
		l, err := lc.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			_ = c.Close()
			return false
		}
		p.claims = append(p.claims, c)
		return l.Close() == nil
	}
	l, err := lc.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	return err == nil && l.Close() == nil
}

func (p *ports) release() {
	for _, c := range p.claims {
		_ = c.Close()
	}
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
func httpURL(port int) string { return "http://" + address(port) }
