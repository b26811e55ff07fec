package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/service"
	"example.com/paycast/shared/webhook"
)

func freeAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func call(t *testing.T, method, url, key, body string) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Close = true
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer), err
}

// start runs the real entry point and returns its addresses and a function that stops it and gives its error.
func start(t *testing.T, env service.Env) (url string, stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var ended chan error
	launch := func() {
		env["HTTP_ADDR"], env["OPS_ADDR"] = freeAddr(t), freeAddr(t)
		ended = make(chan error, 1)
		go func() { ended <- Serve(ctx, env) }()
	}
	launch()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		select {
		case err := <-ended:
			if errors.Is(err, syscall.EADDRINUSE) { // somebody was faster
				launch()
			} else {
				ended <- err
			}
			c.Errorf("it ended: %v", err)
			return
		default:
		}
		status, _, err := call(t, http.MethodGet, "http://"+env["OPS_ADDR"]+"/readyz", "", "")
		if err != nil || status != http.StatusOK {
			c.Errorf("not ready: %d %v", status, err)
		}
		if _, _, err := call(t, http.MethodGet, "http://"+env["HTTP_ADDR"]+"/mode", "", ""); err != nil {
			c.Errorf("not serving: %v", err)
		}
	}, time.Minute, 10*time.Millisecond)
	var result error
	stopped := false
	stop = func() error {
		if !stopped {
			stopped = true
			cancel()
			result = <-ended
		}
		return result
	}
	t.Cleanup(func() { _ = stop() })
	return "http://" + env["HTTP_ADDR"], stop
}

func TestBothProvidersServeFromOneProgramAndTheMessagesSurviveARestart(t *testing.T) {
	t.Parallel()
	secret := webhook.NewSecret()
	secrets, err := webhook.ParseSecrets(secret)
	require.NoError(t, err)
	payment := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || secrets.Verify(r.Header, body) != nil || r.URL.Path != "/callbacks/payment" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer payment.Close()
	dir := t.TempDir()
	env := func() service.Env {
		return service.Env{"WEBHOOK_SECRET": secret, "MERCHANT_ID": "m-1", "PAYMENT_URL": payment.URL, "DIR": dir}
	}
	url, stop := start(t, env())

	status, answer, err := call(t, http.MethodPost, url+"/pay", "", `{"order_no": "O-1", "amount": 1, "currency": "EUR"}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, answer)
	var report struct{ Accepted int }
	require.NoError(t, json.Unmarshal([]byte(answer), &report))
	require.Equal(t, 1, report.Accepted)

	status, _, err = call(t, http.MethodPost, url+"/sms", "k1", `{"to": "+1", "text": "hi"}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, status)
	_, before, err := call(t, http.MethodGet, url+"/messages", "", "")
	require.NoError(t, err)
	require.NoError(t, stop())

	url, _ = start(t, env())
	_, after, err := call(t, http.MethodGet, url+"/messages", "", "")
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestStopDoesNotWaitForRequestsThatHangOnPurpose(t *testing.T) {
	t.Parallel()
	url, stop := start(t, service.Env{"WEBHOOK_SECRET": webhook.NewSecret(), "MERCHANT_ID": "m-1", "PAYMENT_URL": "http://127.0.0.1:1"})
	_, _, err := call(t, http.MethodPut, url+"/mode", "", `{"mode": "accept_then_hang", "delay_ms": 60000}`)
	require.NoError(t, err)
	done := make(chan error, 2)
	go func() {
		_, _, err := call(t, http.MethodPost, url+"/sms", "k1", `{"to": "+1", "text": "hi"}`)
		done <- err
	}()
	go func() {
		status, _, _ := call(t, http.MethodPost, url+"/pay", "", `{"order_no": "O-1", "amount": 1, "currency": "EUR", "delay_ms": 60000}`)
		done <- fmt.Errorf("status %d", status)
	}()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, messages, err := call(t, http.MethodGet, url+"/messages", "", "")
		if err != nil || !strings.Contains(messages, "k1") {
			c.Errorf("not accepted yet")
		}
	}, time.Minute, 10*time.Millisecond)
	begin := time.Now()
	require.NoError(t, stop())
	require.Less(t, time.Since(begin), 50*time.Second, "they hang for a minute")
	require.Error(t, <-done)
	require.Error(t, <-done)
}

func TestStartWithoutARealSecretIsRefused(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"", "changeme", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} {
		for _, run := range []func(context.Context, service.Env) error{Serve, Load} {
			err := run(t.Context(), service.Env{"WEBHOOK_SECRET": secret, "MERCHANT_ID": "m-1"})
			require.ErrorAs(t, err, new(*service.ConfigError))
			require.ErrorContains(t, err, "openssl rand")
		}
	}
}
