package service

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/settings"
	"example.com/paycast/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// soon is much longer than anything here takes on a machine that has the time.
const soon = time.Minute

type config struct {
	Base
	DatabaseURL string  `env:"DATABASE_URL,required,notEmpty"`
	Secret      string  `env:"WEBHOOK_SECRETS,required"`
	Rate        float64 `env:"SMS_RATE" envDefault:"5"`
}

func TestEveryConfigurationProblemIsReportedAtOnceWithoutValues(t *testing.T) {
	t.Parallel()
	err := Env{"DATABASE_URL": "", "SMS_RATE": "s3cr3t"}.Parse(&config{})
	require.ErrorAs(t, err, new(*ConfigError))
	require.ErrorContains(t, err, "DATABASE_URL is empty")
	require.ErrorContains(t, err, "WEBHOOK_SECRETS is not set")
	require.ErrorContains(t, err, "SMS_RATE cannot be read as float64")
	require.NotContains(t, err.Error(), "s3cr3t")
}

func TestDefaultsSetBeforeParseStay(t *testing.T) {
	t.Parallel()
	cfg := config{Base: Base{OpsAddr: "127.0.0.1:9082"}}
	require.NoError(t, Env{"DATABASE_URL": "x", "WEBHOOK_SECRETS": "y"}.Parse(&cfg))
	require.Equal(t, "127.0.0.1:9082", cfg.OpsAddr)
	require.Equal(t, "info", cfg.LogLevel)
	require.InDelta(t, 5, cfg.Rate, 0)
}

func TestASecretMayComeAsAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "url")
	require.NoError(t, os.WriteFile(path, []byte("postgres://u:p=w@h/d\n"), 0o600))
	parse := func(list ...string) (config, error) {
		var cfg config
		err := environment(append(list, "WEBHOOK_SECRETS=x")).Parse(&cfg)
		return cfg, err
	}
	cfg, err := parse("DATABASE_URL_FILE=" + path)
	require.NoError(t, err)
	require.Equal(t, "postgres://u:p=w@h/d", cfg.DatabaseURL)

	_, err = parse("DATABASE_URL_FILE="+path, "DATABASE_URL=other")
	require.ErrorContains(t, err, "both DATABASE_URL and DATABASE_URL_FILE are set")
	_, err = parse("DATABASE_URL_FILE=" + path + ".gone")
	require.ErrorContains(t, err, "DATABASE_URL_FILE")
	require.NotContains(t, err.Error(), "is not set", "one fault, one line")
}

func TestAnotherProgramsFileVariableIsNotOurs(t *testing.T) {
	t.Parallel()
	env := environment([]string{"DATABASE_URL=x", "WEBHOOK_SECRETS=y", "SOME_TOOL_CONFIG_FILE=/nowhere/at/all"})
	require.NoError(t, env.Parse(&config{}))
}

func TestEmptyShortAndSampleSecretsAreRefused(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"", " ", "changeme", "Secret", "0123456789abcde"} {
		err := CheckSecret("OPS_TOKEN", value)
		require.ErrorContains(t, err, "OPS_TOKEN", value)
		require.ErrorContains(t, err, "openssl rand", value)
	}
	require.NoError(t, CheckSecret("OPS_TOKEN", "0123456789abcdef"))
	_, err := start(t.Context(), "x", Base{OpsAddr: "127.0.0.1:0", OpsToken: "changeme", LogLevel: "info"}, io.Discard)
	require.ErrorAs(t, err, new(*ConfigError))
}

func TestMainAnswersWithTheExitCodeThatSaysWhatWentWrong(t *testing.T) {
	t.Parallel()
	commands := []Command{
		{Name: "ok", Flags: []string{"--json"}, Run: func(_ context.Context, env Env) error {
			if env["--json"] != "true" {
				return errors.New("the switch did not arrive")
			}
			return nil
		}},
		{Name: "fails", Run: func(context.Context, Env) error { return errors.New("no luck") }},
		{Name: "misconfigured", Run: func(_ context.Context, env Env) error { return env.Parse(&config{}) }},
	}
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"ok --json", 0, ""},
		{"ok", 1, "did not arrive"},
		{"ok --yaml", 2, "usage: points"},
		{"fails", 1, "points fails: no luck"},
		{"misconfigured", 2, "DATABASE_URL is not set"},
		{"unknown", 2, "usage: points"},
		{"", 2, "usage: points"},
	} {
		var out bytes.Buffer
		require.Equal(t, c.code, run("points", commands, strings.Fields(c.args), nil, &out), c.args)
		require.Contains(t, out.String(), c.says, c.args)
	}
}

// TestARequestThatRunsAtTheSignalIsFinished also shows the order of a stop: not ready while the request still runs.
func TestARequestThatRunsAtTheSignalIsFinished(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	addr, opsAddr := testkit.FreeAddr(t), testkit.FreeAddr(t)
	p, err := start(ctx, "x", Base{OpsAddr: opsAddr, LogLevel: "info"}, io.Discard)
	require.NoError(t, err)
	entered, proceed := make(chan struct{}), make(chan struct{})
	require.NoError(t, p.Serve("api", addr, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-proceed
		w.WriteHeader(http.StatusNoContent)
	})))
	loopEnded := make(chan struct{})
	p.Go("loop", func(ctx context.Context) error { <-ctx.Done(); close(loopEnded); return ctx.Err() })
	closed := false
	p.Close(func() { closed = true })
	health := func() error { return healthcheck(t.Context(), Env{"OPS_ADDR": opsAddr}) }
	require.ErrorContains(t, health(), "starting up", "more may follow until Wait")
	waited := make(chan error, 1)
	go func() { waited <- p.Wait() }()
	require.Eventually(t, func() bool { return health() == nil }, soon, time.Millisecond)

	answer := make(chan int, 1)
	go func() {
		resp, err := http.Get("http://" + addr)
		if err != nil {
			answer <- 0
			return
		}
		_ = resp.Body.Close()
		answer <- resp.StatusCode
	}()
	<-entered
	stop()
	<-loopEnded
	require.ErrorContains(t, health(), "shutting down")
	close(proceed)
	require.Equal(t, http.StatusNoContent, <-answer)
	require.NoError(t, <-waited)
	require.True(t, closed)
	require.Error(t, health(), "the ops listener must be gone")
	http.DefaultClient.CloseIdleConnections()
}

func TestARequestsWorkEndsWhileItCanStillBeAnswered(t *testing.T) {
	t.Parallel()
	var end time.Time
	p := answered(t, http.Header{}, func(_ *Process, r *http.Request) { end, _ = r.Context().Deadline() })
	require.False(t, end.IsZero(), "a database that falls silent would keep it for ever")
	require.Less(t, time.Until(end), p.listeners[0].WriteTimeout)
}

// answered lets a process answer one request with these headers, and stops it.
func answered(t *testing.T, headers http.Header, answer func(p *Process, r *http.Request)) *Process {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	p, err := start(ctx, "x", Base{OpsAddr: "127.0.0.1:0", LogLevel: "info"}, io.Discard)
	require.NoError(t, err)
	addr, done := testkit.FreeAddr(t), make(chan struct{})
	require.NoError(t, p.Serve("api", addr, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		answer(p, r)
		close(done)
	})))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr, nil)
	require.NoError(t, err)
	req.Header = headers
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	<-done
	stop()
	require.NoError(t, p.Wait())
	http.DefaultClient.CloseIdleConnections()
	return p
}

func TestWithoutAnEndpointARequestIsNotTracedWhateverItsCallerSends(t *testing.T) {
	t.Parallel()
	var span trace.Span
	answered(t, http.Header{"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}, func(p *Process, r *http.Request) {
		_, span = p.Tracer.Tracer("x").Start(r.Context(), "work")
	})
	require.False(t, span.IsRecording())
	require.False(t, span.SpanContext().IsValid())
}

func TestALoopThatFailsOrEndsByItselfEndsTheProcess(t *testing.T) {
	t.Parallel()
	for _, want := range []error{errors.New("broker is gone"), nil} {
		p, err := start(t.Context(), "x", Base{OpsAddr: "127.0.0.1:0", LogLevel: "info"}, io.Discard)
		require.NoError(t, err)
		p.Go("relay", func(context.Context) error { return want })
		err = p.Wait()
		require.ErrorContains(t, err, "relay")
		if want != nil {
			require.ErrorIs(t, err, want)
		}
	}
}

func TestATakenAddressIsNamed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	_, err = start(t.Context(), "x", Base{OpsAddr: l.Addr().String(), LogLevel: "info"}, io.Discard)
	require.ErrorContains(t, err, l.Addr().String())
}

func TestSettingsAreToldWhenAllPartsAreThereAndOnlyWithTheToken(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	addr := testkit.FreeAddr(t)
	p, err := start(ctx, "x", Base{OpsAddr: addr, OpsToken: "0123456789abcdef", LogLevel: "info"}, io.Discard)
	require.NoError(t, err)
	var down atomic.Bool
	p.Settings(func(_ context.Context, to *settings.Report) error {
		if down.Load() {
			return errors.New("the database is down")
		}
		to.Leases = append(to.Leases, settings.Lease{Of: "rows", Lease: settings.Duration(15 * time.Second)})
		return nil
	})
	client := ops.Client{BaseURL: "http://" + addr, Token: "0123456789abcdef"}
	var r settings.Report
	require.ErrorContains(t, client.GetJSON(ctx, "/ops/settings", nil, &r), "starting up")
	waited := make(chan error, 1)
	go func() { waited <- p.Wait() }()
	require.Eventually(t, func() bool { return client.GetJSON(ctx, "/ops/settings", nil, &r) == nil }, soon, time.Millisecond)
	require.Equal(t, "x", r.Process)
	require.Equal(t, settings.Duration(15*time.Second), r.Leases[0].Lease, "it reads as it was written")
	require.WithinDuration(t, time.Now(), r.Now, soon)
	down.Store(true)
	require.ErrorContains(t, client.GetJSON(ctx, "/ops/settings", nil, &r), "the database is down")
	require.Error(t, ops.Client{BaseURL: client.BaseURL}.GetJSON(ctx, "/ops/settings", nil, &r))
	stop()
	require.NoError(t, <-waited)
	http.DefaultClient.CloseIdleConnections()
}
