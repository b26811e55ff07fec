package reconcile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"example.com/paycast/shared/facts"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

// soon is much longer than anything here takes on a machine that has the time.
const soon = 2 * time.Minute

// client talks to a reconciler that runs as it does in production.
type client struct {
	t     testing.TB
	env   service.Env
	token string
}

// noRun has the form of an id, so that the database is asked.
const noRun = "00000000-0000-4000-8000-000000000000"

func serve(t testing.TB, env service.Env) client {
	t.Helper()
	testkit.Run(t, "reconcile serve", func(ctx context.Context) error { return Serve(ctx, env) })
	c := client{t, env, token}
	testkit.Eventually(t, soon, func() error {
		status, body, err := c.try("GET", "http://"+env["HTTP_ADDR"]+"/runs/"+noRun)
		if err == nil && status != http.StatusNotFound {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	})
	return c
}

func (c client) try(method, url string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(c.t.Context(), method, url, nil)
	if err != nil {
		return 0, nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// do sends a request and holds the answer against openapi.yaml.
func (c client) do(method, path string, want int, schema string) []byte {
	c.t.Helper()
	status, body, err := c.try(method, "http://"+c.env["HTTP_ADDR"]+path)
	require.NoError(c.t, err)
	require.Equal(c.t, want, status, "%s", body)
	conforms(c.t, schema, body)
	return body
}

func (c client) start() (id string) {
	c.t.Helper()
	var begun struct{ ID string }
	require.NoError(c.t, json.Unmarshal(c.do("POST", "/runs", http.StatusAccepted, "Begun"), &begun))
	return begun.ID
}

func (c client) get(id string) (run Run) {
	c.t.Helper()
	require.NoError(c.t, json.Unmarshal(c.do("GET", "/runs/"+id, http.StatusOK, "Run"), &run))
	return run
}

// run starts a run and waits for its end.
func (c client) run() Run {
	c.t.Helper()
	return c.wait(c.start())
}

func (c client) wait(id string) (run Run) {
	c.t.Helper()
	testkit.Eventually(c.t, soon, func() error {
		if run = c.get(id); run.Status == Running {
			return errors.New("still running")
		}
		return nil
	})
	return run
}

// metric is the value of a series as /metrics shows it.
func (c client) metric(series string) string {
	c.t.Helper()
	_, body, err := c.try("GET", "http://"+c.env["OPS_ADDR"]+"/metrics")
	require.NoError(c.t, err)
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// conforms holds a body against a schema of openapi.yaml.
func conforms(t testing.TB, schema string, body []byte) {
	t.Helper()
	text, err := os.ReadFile("../../openapi.yaml")
	require.NoError(t, err)
	var doc any
	require.NoError(t, yaml.Unmarshal(text, &doc))
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	require.NoError(t, compiler.AddResource("openapi.yaml", doc))
	compiled, err := compiler.Compile("openapi.yaml#/components/schemas/" + schema)
	require.NoError(t, err)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	require.NoError(t, err)
	require.NoError(t, compiled.Validate(value), "%s", body)
}

func TestRunsAgreeThenDifferThenAgreeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeOrders())
	c := serve(t, w.env())
	for kind := range nextStep {
		require.Equal(t, "0", c.metric(`reconcile_drift_items{kind="`+kind+`"}`), kind)
	}
	for _, result := range []string{Agree, Differ, Failed} {
		require.Equal(t, "0", c.metric(`reconcile_runs_total{result="`+result+`"}`), result)
	}

	run := c.run()
	require.Equal(t, Agree, run.Status, "%+v", run)
	require.Empty(t, run.Findings)
	require.Equal(t, 3, run.Checked.Orders)
	require.Equal(t, 7, run.Checked.Events)
	require.Equal(t, 7, run.Checked.Groups["search"][applied])
	require.Equal(t, int64(123), run.Checked.Points["points"].Credited)
	require.NotNil(t, run.EndedAt)

	w.change(func(s *Snapshot) {
		s.find("points").lose(paid1)
		s.find("points").fact("0002-v2").Effect.UserID = "user-2"
		s.find("notify").fact(cancel2).Effect.State = "FAILED"
		s.find("search").fact("0003-v2").Effect.Digest = "other"
		s.find("points").Faults = []facts.Fault{{Ref: "user-1", Detail: "balance 7, entries 6"}}
		s.find("search").Facts = append(s.find("search").Facts, facts.Fact{EventID: "forged", OrderNo: "nowhere", Status: "DEAD"})
	})
	run = c.run()
	require.Equal(t, Differ, run.Status)
	var got []Finding
	for _, f := range run.Findings {
		require.Equal(t, stateOpen, f.State)
		got = append(got, Finding{Kind: f.Kind, Group: f.Group, OrderNo: f.OrderNo, EventID: f.EventID})
	}
	require.Equal(t, []Finding{
		{Kind: SelfCheck, Group: "points"},
		{Kind: UnknownEvent, Group: "search", OrderNo: "nowhere", EventID: "forged"},
		{Kind: Missing, Group: "points", OrderNo: order1, EventID: paid1},
		{Kind: EffectFailed, Group: "notify", OrderNo: order2, EventID: cancel2},
		{Kind: EffectDiffers, Group: "points", OrderNo: order2, EventID: "0002-v2"},
		{Kind: EffectDiffers, Group: "search", OrderNo: "order-0003", EventID: "0003-v2"},
	}, got)
	require.Equal(t, 1, run.Checked.Groups["points"][Missing])
	testkit.Eventually(t, soon, func() error {
		if got := c.metric(`reconcile_drift_items{kind="missing"}`); got != "1" {
			return fmt.Errorf("drift is %s", got)
		}
		return nil
	})

	w.change(func(s *Snapshot) { *s = threeOrders() })
	require.Equal(t, Agree, c.run().Status)
	testkit.Eventually(t, soon, func() error {
		if drift, runs := c.metric(`reconcile_drift_items{kind="missing"}`), c.metric(`reconcile_runs_total{result="agree"}`); drift != "0" || runs != "2" {
			return fmt.Errorf("drift is %s after %s runs that agreed", drift, runs)
		}
		return nil
	})
}

func TestWhoCannotBeAskedFailsTheRunByName(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		breakIt func(w *world, env service.Env)
		want    string
	}{
		"a group is down":    {func(w *world, _ service.Env) { w.groups["points"].Close() }, "asking group points for its facts"},
		"the source is down": {func(w *world, _ service.Env) { w.source.Close() }, "asking the source for its facts"},
		"kafka is down":      {func(w *world, _ service.Env) { w.broker.Kill() }, "asking kafka for the offsets of group"},
		"two addresses are swapped": {func(w *world, env service.Env) {
			env["FACTS_URLS"] = "points=" + w.groups["notify"].URL
		}, `group points for its facts: the service at this address is group "notify"`},
		"a group has another token": {func(w *world, env service.Env) {
			env["FACTS_URLS"] = "points=" + guarded(w.t, "another-token-than-ours")
		}, "group points for its facts: 401"},
		"the second look finds nobody": {func(w *world, _ service.Env) {
			w.change(func(s *Snapshot) { s.find("points").lose(paid1) })
			w.meddle = func(_ string, r *http.Request) {
				if r.URL.Query().Has("event_id") {
					panic(http.ErrAbortHandler)
				}
			}
		}, "looking a second time: asking group"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, threeOrders())
			env := w.env()
			test.breakIt(w, env)
			run, err := runOnce(t, env)
			require.ErrorContains(t, err, test.want)
			require.Equal(t, Failed, run.Status)
			require.Contains(t, run.Error, test.want)
			require.Nil(t, run.Checked)
			require.NotContains(t, run.Error, token)
		})
	}
}

// runOnce is `reconcile once --json`.
func runOnce(t testing.TB, env service.Env) (run Run, err error) {
	t.Helper()
	var out bytes.Buffer
	env["--json"] = "true"
	err = once(t.Context(), env, &out)
	conforms(t, "Run", out.Bytes())
	require.NoError(t, json.Unmarshal(out.Bytes(), &run))
	return run, err
}

func TestOnceShowsATableAndIsAnErrorUnlessAllAgree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeOrders())
	env := w.env()
	var out bytes.Buffer
	require.NoError(t, once(t.Context(), env, &out))
	require.Regexp(t, `run \S+: agree`, out.String())
	require.Regexp(t, `(?m)^points +3 +0 +4 +0 +0 +0 +0 +0 +0 +0$`, out.String())
	require.Regexp(t, `credited 123 +reversed 0 +expected 123`, out.String())

	w.change(func(s *Snapshot) { s.find("points").fact(paid1).Effect = nil })
	out.Reset()
	require.ErrorContains(t, once(t.Context(), env, &out), "1 findings")
	require.Regexp(t, `(?m)^effect_missing +points +order-0001 +0001-v2 `, out.String())
	require.Contains(t, out.String(), nextStep[EffectMissing], "it says what to look at next")
}

func TestWithoutTheTokenNothingIsAnsweredAndNothingBegins(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeOrders())
	c := serve(t, w.env())
	for _, wrong := range []string{"", "another-token-than-ours"} {
		c.token = wrong
		c.do("POST", "/runs", http.StatusUnauthorized, "Problem")
		c.do("GET", "/runs/none", http.StatusUnauthorized, "Problem")
	}
	c.token = token
	c.do("GET", "/runs/none", http.StatusNotFound, "Problem")
	c.do("GET", "/runs/%00", http.StatusNotFound, "Problem")
	c.do("GET", "/nothing", http.StatusNotFound, "Problem")
	var rows int64
	require.NoError(t, openStore(t, c.env["DATABASE_URL"]).db.Model(&runRow{}).Count(&rows).Error)
	require.Zero(t, rows)
}

func TestASecondRunIsRefusedWhileOneIsInProgress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeOrders())
	asked, release := make(chan struct{}, 100), make(chan struct{})
	w.meddle = func(part string, _ *http.Request) {
		if part == "source" {
			asked <- struct{}{}
			<-release
		}
	}
	c := serve(t, w.env())
	first := c.start()
	<-asked
	require.Equal(t, Running, c.get(first).Status)
	require.Contains(t, string(c.do("POST", "/runs", http.StatusConflict, "Problem")), first)
	busy := (*BusyError)(nil)
	require.ErrorAs(t, once(t.Context(), c.env, io.Discard), &busy, "another process is refused as well")
	require.Equal(t, first, busy.ID)
	close(release)
	require.Equal(t, Agree, c.wait(first).Status)
	require.Equal(t, Agree, c.run().Status)
}

func TestStoppedInTheMiddleARunIsFailedAndNotLeftRunning(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeOrders())
	asked := make(chan struct{}, 100)
	w.meddle = func(_ string, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}
	env := w.env()
	ctx, stop := context.WithCancel(t.Context())
	go func() { <-asked; stop() }()
	require.ErrorContains(t, once(ctx, env, io.Discard), "told to stop")
	w.meddle = nil
	c := serve(t, env)
	require.Equal(t, Agree, c.run().Status, "the next one may begin at once")
}

func TestTheRunOfAKilledProcessIsMarkedFailedAtTheNextStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeOrders())
	env := w.env()
	store := openStore(t, env["DATABASE_URL"])
	killed, err := store.Begin(t.Context())
	require.NoError(t, err)
	// What the kernel does for a killed process: its connection ends, and with it the lock.
	var pid int
	require.NoError(t, killed.conn.QueryRowContext(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
	other := openStore(t, env["DATABASE_URL"])
	require.NoError(t, other.db.Exec(`SELECT pg_terminate_backend(?, 60000)`, pid).Error)

	c := serve(t, env)
	run := c.get(killed.ID)
	require.Equal(t, Failed, run.Status)
	require.Contains(t, run.Error, "process that ran it ended")
	require.Equal(t, Agree, c.run().Status)
	// Should the old process be alive after all, it cannot turn its run into an agreement.
	require.ErrorContains(t, killed.End(t.Context(), Report{}, nil), "ended by another process")
	require.Equal(t, Failed, c.get(killed.ID).Status)
}

func TestEveryFaultOfTheConfigurationIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	err := Serve(t.Context(), service.Env{})
	for _, name := range []string{"DATABASE_URL", "KAFKA_BROKERS", "PAYMENT_OPS_URL", "FACTS_URLS"} {
		require.ErrorContains(t, err, name)
	}
	err = Serve(t.Context(), service.Env{
		"DATABASE_URL": "postgres://x", "KAFKA_BROKERS": "x:1", "PAYMENT_OPS_URL": "no-address", "FACTS_URLS": "points=nowhere",
		"OPS_TOKEN": "changeme", "LATE_AFTER": "0s",
	})
	var wrong *service.ConfigError
	require.ErrorAs(t, err, &wrong)
	for _, part := range []string{"PAYMENT_OPS_URL", "group points", "OPS_TOKEN", "LATE_AFTER"} {
		require.ErrorContains(t, err, part)
	}
}

func TestMetricsKeepTheRulesForNames(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	newMetrics(reg)
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	require.Empty(t, problems)
}
