package testkit

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// gate stands between the broker and its connections. Shut, it lets no byte through in either direction; open, it may
// still swallow answers.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil when open; closed by open
	lose   atomic.Int64  // how many more produce requests are to get no answer
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

// pass waits while the gate is shut.
func (g *gate) pass() {
	for {
		g.mu.Lock()
		closed := g.closed
		g.mu.Unlock()
		if closed == nil {
			return
		}
		<-closed
	}
}

// takeLoss reports whether this produce request is one of those that get no answer.
func (g *gate) takeLoss() bool {
	for {
		n := g.lose.Load()
		if n <= 0 {
			return false
		}
		if g.lose.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

func (g *gate) listen(network, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), network, address)
	if err != nil {
		return nil, err
	}
	return gatedListener{l, g}, nil
}

type gatedListener struct {
	net.Listener
	gate *gate
}

func (l gatedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &gatedConn{Conn: c, gate: l.gate}, nil
}

// gatedConn reads along: a request is its length in 4 bytes, then the kind in 2, a version in 2, and a number in 4 that
// the answer repeats after its own length.
type gatedConn struct {
	net.Conn
	gate *gate

	head []byte // of the request being read, up to 12 bytes; the broker reads from one goroutine
	left int    // bytes of its body that are still to come

	lost sync.Map // numbers of requests that get no answer
}

func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.gate.pass() // after the read: the broker is not to see what comes while the gate is shut
	c.watch(b[:n])
	return n, err
}

func (c *gatedConn) watch(b []byte) {
	const lengthBytes, headBytes, produce = 4, 12, 0
	for len(b) > 0 {
		want := headBytes - len(c.head)
		if len(c.head) < lengthBytes {
			want = lengthBytes - len(c.head)
		} else {
			want = min(want, c.left)
		}
		if want > 0 {
			took := min(want, len(b))
			c.head = append(c.head, b[:took]...)
			b = b[took:]
			switch {
			case len(c.head) == lengthBytes:
				c.left = int(binary.BigEndian.Uint32(c.head))
			case len(c.head) > lengthBytes:
				c.left -= took
			}
			if len(c.head) == headBytes && binary.BigEndian.Uint16(c.head[4:]) == produce && c.gate.takeLoss() {
				c.lost.Store(binary.BigEndian.Uint32(c.head[8:]), true)
			}
		} else {
			took := min(c.left, len(b))
			b, c.left = b[took:], c.left-took
		}
		if c.left == 0 && len(c.head) >= lengthBytes {
			c.head = c.head[:0]
		}
	}
}

// Write gets one whole answer at a time.
func (c *gatedConn) Write(b []byte) (int, error) {
	c.gate.pass()
	if len(b) >= 8 {
		if _, lost := c.lost.LoadAndDelete(binary.BigEndian.Uint32(b[4:])); lost {
			_ = c.Close()
			return 0, errors.New("the answer is lost, as the test wants it")
		}
	}
	return c.Conn.Write(b)
}
