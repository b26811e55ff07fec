package postgres_test

import (
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// cut is a proxy that can let requests through and swallow the answers, closing the client's side instead: exactly what
// a connection lost behind COMMIT looks like.
type cut struct {
	addr           string
	swallowAnswers atomic.Bool
}

func cutter(t *testing.T, upstream string) *cut {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	c := &cut{addr: l.Addr().String()}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go c.serve(client, upstream)
		}
	}()
	return c
}

func (c *cut) serve(client net.Conn, upstream string) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", upstream)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := client.Read(buf)
			if err != nil {
				_ = server.Close()
				return
			}
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := server.Read(buf)
		if err != nil || c.swallowAnswers.Load() {
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}
