package payment_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"example.com/paycast/services/payment/internal/payment"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
	"example.com/paycast/shared/webhook"
)

const program = "example.com/paycast/services/payment"

// process starts the real binary, to be killed for real. s.url and s.ops are those of the process from now on.
func (s *stack) process(t *testing.T, more service.Env) *testkit.Process {
	t.Helper()
	env := maps.Clone(s.env)
	maps.Copy(env, more)
	env["HTTP_ADDR"], env["OPS_ADDR"] = testkit.FreeAddr(t), testkit.FreeAddr(t)
	p := testkit.Exec(t, program, env, "api")
	p.WaitReady(env["OPS_ADDR"], soon)
	s.url, s.ops.BaseURL = "http://"+env["HTTP_ADDR"], "http://"+env["OPS_ADDR"]
	return p
}

func TestSecretsThatProtectNothingStopTheStart(t *testing.T) {
	t.Parallel()
	good := service.Env{
		"DATABASE_URL": "postgres://127.0.0.1:1/none", "MERCHANT_ID": merchant, "WEBHOOK_SECRETS": webhook.NewSecret(),
		"HTTP_ADDR": "127.0.0.1:0", "OPS_ADDR": "127.0.0.1:0",
	}
	for _, secret := range []string{"", " ", "changeme", "whsec_", "whsec_changeme", "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32)), webhook.NewSecret() + ",changeme"} {
		env := maps.Clone(good)
		env["WEBHOOK_SECRETS"] = secret
		requireConfigError(t, payment.API(t.Context(), env), "WEBHOOK_SECRETS", "openssl rand")
		delete(env, "WEBHOOK_SECRETS")
		requireConfigError(t, payment.API(t.Context(), env), "WEBHOOK_SECRETS", "openssl rand")
	}
	for _, name := range []string{"DATABASE_URL", "MERCHANT_ID"} {
		env := maps.Clone(good)
		delete(env, name)
		requireConfigError(t, payment.API(t.Context(), env), name)
		env[name] = ""
		requireConfigError(t, payment.API(t.Context(), env), name)
	}
	env := maps.Clone(good)
	env["OPS_TOKEN"] = "changeme"
	requireConfigError(t, payment.API(t.Context(), env), "OPS_TOKEN")
	requireConfigError(t, payment.Relay(t.Context(), service.Env{"OPS_ADDR": "127.0.0.1:0"}), "DATABASE_URL", "KAFKA_BROKERS")
	requireConfigError(t, payment.Migrate(t.Context(), service.Env{}), "DATABASE_URL")

	env = maps.Clone(good)
	env["WEBHOOK_SECRETS"] = "hunter2-hunter2-hunter2"
	p := testkit.Exec(t, program, env, "api")
	require.ErrorContains(t, p.Wait(soon), "exit status 2")
	require.Contains(t, p.Stderr(), "WEBHOOK_SECRETS")
	require.NotContains(t, p.Stderr(), "hunter2")
}

func requireConfigError(t *testing.T, err error, says ...string) {
	t.Helper()
	require.ErrorAs(t, err, new(*service.ConfigError))
	for _, what := range says {
		require.ErrorContains(t, err, what)
	}
}

// TestProcessKilledInTheMiddleOfACallbackLeavesNothingProcessing: kill -9 while the transaction is open, at each step.
func TestProcessKilledInTheMiddleOfACallbackLeavesNothingProcessing(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	for _, step := range steps {
		no := s.newOrder()
		id, body := "w-"+no, encode(t, notice("payment.succeeded", no, "trade-"+no))
		h := s.signed(id, body)
		before := s.tables()
		repair := s.sabotage(step.table, step.when, waitForTest)
		release := s.hold()
		victim := *s
		p := victim.process(t, nil)
		lost := make(chan error, 1)
		go func() {
			_, err := trySend("POST", victim.url+"/callbacks/payment", h, body)
			lost <- err
		}()
		s.waiting(1)
		p.Kill()
		require.Error(t, <-lost)
		if step.when == atWrite {
			// The server notices a dead client only when it next writes to it; this is the next thing it would do.
			s.exec("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'payment' and wait_event = 'advisory' and datname = current_database()")
		}
		release()
		repair()
		if step.when == atWrite {
			s.idle()
			require.Equal(t, before, s.tables(), "%v", step)
		}
		require.Equal(t, success, s.callback(id, body).body, "%v", step)
		require.Equal(t, "PAID", s.get(no).Status)
		require.Equal(t, "1 OrderCreated, 2 PaymentSucceeded", s.events(no))
	}
}

// TestStoppedProcessFinishesTheCallbackThatItHasTaken: SIGTERM while the transaction is open.
func TestStoppedProcessFinishesTheCallbackThatItHasTaken(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no := s.newOrder()
	body := encode(t, notice("payment.succeeded", no, "trade-1"))
	h := s.signed("w", body)
	defer s.sabotage("t_outbox_event", atWrite, waitForTest)()
	release := s.hold()
	defer release()
	leaving := *s
	p := leaving.process(t, nil)
	answered := make(chan answer, 1)
	go func() {
		a, _ := trySend("POST", leaving.url+"/callbacks/payment", h, body)
		answered <- a
	}()
	s.waiting(1)
	ended := make(chan error, 1)
	go func() { ended <- p.Term(soon) }()
	testkit.Eventually(t, soon, func() error {
		if err := leaving.ops.GetJSON(t.Context(), "/readyz", nil, nil); err == nil {
			return fmt.Errorf("still ready")
		}
		return nil
	})
	release()
	require.Equal(t, success, (<-answered).body)
	require.NoError(t, <-ended)
	require.Equal(t, "PAID", s.get(no).Status)
}

// TestPhoneAndSecretsStayWhereTheyBelong looks through everything that the process writes and answers, at its most
// talkative and with all kinds of trouble, and through every column but the one.
func TestPhoneAndSecretsStayWhereTheyBelong(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	p := s.process(t, service.Env{"LOG_LEVEL": "debug"})
	var said strings.Builder
	tell := func(a answer) { said.Write(a.body); fmt.Fprint(&said, a.header) }

	created := s.create("k", orderBody())
	tell(created)
	tell(s.create("k", orderBody()))
	spoilt := orderBody()
	spoilt["amount"] = -1
	tell(s.create("k2", spoilt))
	for _, step := range []string{"t_order", "t_idempotency_key", "t_outbox_event"} {
		repair := s.sabotage(step, atWrite, "raise exception 'sabotage' using errcode = '23514', detail = 'Failing row contains ' || new::text;")
		tell(s.create("k3", orderBody()))
		repair()
	}
	no := decode[order](t, created.body).OrderNo
	s.pay(no, "trade-1")
	tell(s.callback("w-2", encode(t, notice("payment.succeeded", no, "trade-2"))))
	tell(s.callback("w-3", []byte(`{"type":"`+phone+`"`)))
	tell(send(t, "POST", s.url+"/callbacks/payment", http.Header{"Content-Type": {"application/json"}, webhook.HeaderSignature: {"v1," + phone}}, []byte(phone)))
	tell(s.cancel(no))
	tell(send(t, "GET", s.url+"/orders/"+url.PathEscape(phone), nil, nil))
	require.NoError(t, s.ops.GetJSON(t.Context(), "/ops/orders/"+no+"/contact", nil, nil))
	metrics := s.metrics()
	require.NotContains(t, metrics, no, "no ids as labels")
	said.WriteString(metrics)
	require.NoError(t, p.Term(soon))

	digits := strings.TrimPrefix(phone, "+")
	require.Contains(t, p.Stderr(), "sabotage", "the trouble itself is logged")
	for name, text := range map[string]string{"log": p.Stderr(), "answers": said.String()} {
		for _, secret := range []string{digits, s.env["WEBHOOK_SECRETS"], opsToken} {
			require.False(t, strings.Contains(text, secret), "%s: %s", name, secret)
		}
	}
	require.NotContains(t, p.Stderr(), "A blue lamp", "payloads are not logged")
	for table, rows := range s.tables() {
		want := 0
		if table == "t_order" {
			want = 1 // the one place
		}
		require.Equal(t, want, strings.Count(strings.Join(rows, "\n"), digits), table)
	}
}

func (s *stack) metrics() string {
	s.t.Helper()
	resp, err := http.Get(s.ops.BaseURL + "/metrics")
	require.NoError(s.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return string(text)
}

func TestMetricsAreWellFormedAndStartAtZero(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	text := s.metrics()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	for _, series := range []string{
		`payment_callbacks_total{verdict="paid"}`, `payment_callbacks_total{verdict="repeated"}`, `payment_callbacks_total{verdict="incident"}`,
		`payment_callbacks_total{verdict="refused_signature"}`, `payment_callbacks_total{verdict="refused_too_old"}`, `payment_incidents_total{kind="refund_due"}`,
	} {
		require.Contains(t, text, series+" 0\n")
	}
	no := s.newOrder()
	body := encode(t, notice("payment.succeeded", no, "trade-1"))
	for range 3 {
		s.callback("w", body)
	}
	for _, id := range []string{"v-1", "v-2"} { // the second time it is the same incident
		s.callback(id, encode(t, notice("payment.succeeded", no, "trade-2")))
	}
	send(t, "POST", s.url+"/callbacks/payment", http.Header{"Content-Type": {"application/json"}}, body)
	s.cancel(no)
	text = s.metrics()
	for _, line := range []string{
		`payment_callbacks_total{verdict="paid"} 1`, `payment_callbacks_total{verdict="repeated"} 2`, `payment_callbacks_total{verdict="incident"} 2`,
		`payment_callbacks_total{verdict="refused_headers"} 1`, `payment_incidents_total{kind="second_payment"} 1`, `payment_incidents_total{kind="refund_due"} 1`,
	} {
		require.Contains(t, text, line+"\n")
	}
}

func TestReadyOnlyOnceTheTablesAreThere(t *testing.T) {
	t.Parallel()
	env := service.Env{
		"DATABASE_URL": testkit.Postgres(t), "MERCHANT_ID": merchant, "WEBHOOK_SECRETS": webhook.NewSecret(),
		"HTTP_ADDR": testkit.FreeAddr(t), "OPS_ADDR": testkit.FreeAddr(t), "LOG_LEVEL": "error",
	}
	testkit.Run(t, "payment", func(ctx context.Context) error { return payment.API(ctx, env) })
	require.Contains(t, readyzSays(t, env, "t_order"), "503")
	require.NoError(t, payment.Migrate(t.Context(), env))
	readyzSays(t, env, "200 OK")
}

// readyzSays waits until what is part of the answer, and returns all of it.
func readyzSays(t *testing.T, env service.Env, what string) (says string) {
	t.Helper()
	testkit.Eventually(t, soon, func() error {
		resp, err := http.Get("http://" + env["OPS_ADDR"] + "/readyz")
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		says = resp.Status + string(body)
		if err == nil && !strings.Contains(says, what) {
			err = fmt.Errorf("/readyz says %s", says)
		}
		return err
	})
	return says
}

// TestProcessThatStartsBeforeItsDatabaseServesOnceItIsThere: nobody has to start it again.
func TestProcessThatStartsBeforeItsDatabaseServesOnceItIsThere(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no := s.newOrder()
	u, err := url.Parse(s.dbURL)
	require.NoError(t, err)
	link := testkit.Proxy(t, u.Host)
	u.Host = link.Addr()
	link.Cut()
	env := maps.Clone(s.env)
	env["DATABASE_URL"], env["HTTP_ADDR"], env["OPS_ADDR"] = u.String(), testkit.FreeAddr(t), testkit.FreeAddr(t)
	p := testkit.Exec(t, program, env, "api")
	says := readyzSays(t, env, `"running":"ok"`)
	require.Contains(t, says, "503")
	require.Contains(t, says, "failed to connect")
	s.url = "http://" + env["HTTP_ADDR"]
	body := encode(t, notice("payment.succeeded", no, "trade-1"))
	a := s.callback("w", body)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, "1", a.header.Get("Retry-After"), "the provider calls again")

	link.Restore()
	p.WaitReady(env["OPS_ADDR"], soon)
	require.Equal(t, success, s.callback("w", body).body)
	require.Equal(t, "PAID", s.get(no).Status)
	require.NoError(t, p.Term(soon))
}

func TestFiveStartersMigrateAtOnce(t *testing.T) {
	t.Parallel()
	dbURL := testkit.Postgres(t)
	ended := make(chan error, 5)
	for range 5 {
		go func() { ended <- payment.Migrate(context.Background(), service.Env{"DATABASE_URL": dbURL}) }()
	}
	for range 5 {
		require.NoError(t, <-ended)
	}
}
