package elastictest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// Start runs an in-memory stand-in until the test ends, and returns it with its URL.
func Start(t testing.TB) (*Server, string) {
	t.Helper()
	s, err := New("")
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return s, web.URL
}

// Serve runs a stand-in on addr with its data in dir until ctx ends. It returns nil then, or why it could not run.
func Serve(ctx context.Context, addr, dir string) error {
	s, err := New(dir)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return errors.Join(fmt.Errorf("listening for the stand-in: %w", err), s.Close())
	}
	web := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer stop()
	if err := web.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(fmt.Errorf("serving the stand-in: %w", err), s.Close())
	}
	return s.Close()
}
