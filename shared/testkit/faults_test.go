package testkit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheProxyDisturbsAndHeals(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived.Add(1)
		_, _ = fmt.Fprint(w, "hello") // the client may be gone
	}))
	t.Cleanup(upstream.Close)
	l := Proxy(t, strings.TrimPrefix(upstream.URL, "http://"))
	get := func(within time.Duration) error {
		client := http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Get("http://" + l.Addr())
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
	require.NoError(t, get(soon))

	l.Cut()
	require.ErrorIs(t, get(soon), syscall.ECONNREFUSED)
	l.Restore()
	require.NoError(t, get(soon))

	l.Delay(300 * time.Millisecond)
	begin := time.Now()
	require.NoError(t, get(soon))
	require.GreaterOrEqual(t, time.Since(begin), 300*time.Millisecond)
	l.Heal()

	before := arrived.Load()
	l.CutAnswersAfter(0)
	require.Error(t, get(soon))
	require.Equal(t, before+1, arrived.Load(), "the request arrives, its answer does not")
	l.Heal()

	l.Swallow()
	var timeout net.Error
	require.ErrorAs(t, get(300*time.Millisecond), &timeout)
	require.True(t, timeout.Timeout())
	require.Equal(t, before+1, arrived.Load())
	l.Heal()
	require.NoError(t, get(soon))
}

func TestLogsAreCapturedWithGroupsAndFromManyGoroutines(t *testing.T) {
	t.Parallel()
	logs := Logs()
	log := slog.New(logs).With("group", "points")
	log.WithGroup("event").Info("handled", "id", "e1", "took", 3)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { log.Debug("tick"); _ = logs.Find("tick") })
	}
	wg.Wait()
	require.Len(t, logs.Find("tick"), 8)
	handled := logs.Find("handled")
	require.Len(t, handled, 1)
	require.Equal(t, "points", handled[0]["group"])
	require.Equal(t, map[string]any{"id": "e1", "took": 3.0}, handled[0]["event"])
	require.Contains(t, logs.Text(), `"level":"DEBUG"`)
	require.Empty(t, logs.Find("never"))
}

func TestATaskEndsWithItsTestAndItsErrorIsTheTests(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	task := Run(t, "waiter", func(ctx context.Context) error {
		close(started)
		<-ctx.Done()
		return fmt.Errorf("waiting: %w", ctx.Err())
	})
	<-started
	require.NoError(t, task.Stop(), "the end of the context is no failure")

	task = &Task{cancel: func() {}, done: make(chan struct{}), err: errors.New("broken")}
	close(task.done)
	require.EqualError(t, task.Stop(), "broken")
}

func TestAProcessIsStartedPausedAndKilledForReal(t *testing.T) {
	t.Parallel()
	addr := FreeAddr(t)
	p := Exec(t, "./testdata/program", map[string]string{"ONLY": "this"}, addr)
	p.WaitReady(addr, soon)
	Eventually(t, soon, func() error { // what it writes comes through a pipe
		if out := p.Stderr(); !strings.Contains(out, "environment: ONLY=this\n") {
			return fmt.Errorf("it wrote %q", out)
		}
		return nil
	})
	ask := func(within time.Duration) error {
		client := http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Get("http://" + addr + "/readyz")
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
	p.Pause()
	require.Error(t, ask(300*time.Millisecond))
	p.Resume()
	require.NoError(t, ask(soon))
	require.EqualError(t, p.Term(soon), "exit status 3")

	again := Exec(t, "./testdata/program", nil, addr)
	again.WaitReady(addr, soon)
	again.Pause()
	again.Kill()
	require.EqualError(t, again.Wait(soon), "signal: killed")
	require.Error(t, ask(soon))
}

func TestAProcessThatEndsEarlyFailsTheWaitAtOnce(t *testing.T) {
	t.Parallel()
	p := Exec(t, "./testdata/program", nil, "no address")
	p.t = nil
	message := failure(t, func(f testing.TB) {
		p.t = f
		p.WaitReady("127.0.0.1:1", time.Minute)
	})
	p.t = t
	require.Contains(t, message, "ended before it was ready")
	require.Contains(t, p.Stderr(), "no address")
}
