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
	held   map[int]net.Listener // listened on by ourselves until their process starts
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

// claim shuts out everybody by listening on the port, and other stacks for longer than that: when we let go of the port
// for its process, there is a moment in which nobody listens. The claim is an abstract socket, which the kernel keeps in
// the same network namespace as the ports and drops with us.
func (p *ports) claim(port int) bool {
	ctx := context.Background()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address(port))
	if err != nil {
		return false
	}
	if runtime.GOOS == "linux" {
		c, err := lc.Listen(ctx, "unix", fmt.Sprintf("@paycast-port-%d", port))
		if err != nil {
			_ = l.Close()
			return false
		}
		p.claims = append(p.claims, c)
	}
	if p.held == nil {
		p.held = map[int]net.Listener{}
	}
	p.held[port] = l
	return true
}

// letGo makes room for the process that is about to start.
func (p *ports) letGo(numbers []int) {
	for _, port := range numbers {
		if l, held := p.held[port]; held {
			_ = l.Close() // closing it again, at a later start, changes nothing
		}
	}
}

func (p *ports) release() {
	for _, c := range p.claims {
		_ = c.Close()
	}
	for _, l := range p.held {
		_ = l.Close()
	}
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
func httpURL(port int) string { return "http://" + address(port) }
