package embedded

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// FreePort returns a TCP port of 127.0.0.1 that nobody listens on. Nobody else gets it from here while this process
// lives: who asked may begin to listen much later, or stop and begin again.
func FreePort() (int, error) {
	port, claim, err := ClaimFreePort()
	if err != nil {
		return 0, err
	}
	promised.Store(port, claim)
	return port, nil
}

// promised keeps the claims of FreePort: the collector closes a socket that nobody holds.
var promised sync.Map

// ClaimFreePort claims a port that nobody listens on. It lies below the range from which the kernel takes the ports of
// outgoing connections, so that none of those takes it before it is used.
func ClaimFreePort() (port int, claim io.Closer, err error) {
	for range 100 {
		port = 15000 + rand.IntN(17000)
		if claim, err = ClaimPort(port); err == nil {
			return port, claim, nil
		}
	}
	return 0, nil, fmt.Errorf("finding a free port: %w", err)
}

// ClaimPort keeps a port of 127.0.0.1 from all others who claim one, in other processes as well (on Linux), until the
// claim is closed or this process is gone. It fails when the port is claimed or somebody listens on it.
//
// It does not try the port by listening on it. A child that is started at that moment has a copy of the listening socket
// until it runs its program, and would keep the port from its user for as long.
func ClaimPort(port int) (io.Closer, error) {
	claim, err := claimName(port)
	if err != nil {
		return nil, fmt.Errorf("port %d is claimed already: %w", port, err)
	}
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err == nil {
		_, _ = conn.Close(), claim.Close() // it is of no use to us
		return nil, fmt.Errorf("somebody listens on port %d", port)
	}
	return claim, nil
}

// claimName holds the port's name as an abstract socket, which the kernel keeps in the same network namespace as the
// ports and drops with us.
func claimName(port int) (io.Closer, error) {
	if runtime.GOOS != "linux" {
		return io.NopCloser(nil), nil
	}
	return new(net.ListenConfig).Listen(context.Background(), "unix", fmt.Sprintf("@paycast-port-%d", port))
}
