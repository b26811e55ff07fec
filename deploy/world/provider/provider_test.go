package provider

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/paycast/shared/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver stands where the payment service stands: it checks signatures and remembers what came.
type receiver struct {
	t       *testing.T
	secrets webhook.Secrets
	answer  func(n int) int // status of the n-th request, from 1

	mu       sync.Mutex
	got      []received
	inFlight int
	most     int
}

type received struct {
	id, body string
	verdict  error
	at       time.Time
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	r.mu.Lock()
	r.inFlight++
	r.most = max(r.most, r.inFlight)
	if err == nil {
		r.got = append(r.got, received{req.Header.Get(webhook.HeaderID), string(body), r.secrets.Verify(req.Header, body), time.Now()})
	}
	n, answer := len(r.got), r.answer
	r.mu.Unlock()
	status := http.StatusOK
	if answer != nil {
		status = answer(n)
	}
	r.mu.Lock()
	r.inFlight--
	r.mu.Unlock()
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"result": "success"}`)
}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received{}, r.got...)
}

func setup(t *testing.T, answer func(n int) int) (*Provider, *receiver) {
	old, newest := webhook.NewSecret(), webhook.NewSecret()
	signing, err := webhook.ParseSecrets(newest + "," + old)
	require.NoError(t, err)
	verifying, err := webhook.ParseSecrets(newest)
	require.NoError(t, err)
	r := &receiver{t: t, secrets: verifying, answer: answer}
	server := httptest.NewServer(r)
	p, err := New(server.URL, "merchant-1", signing)
	require.NoError(t, err)
	p.firstWait = time.Millisecond
	t.Cleanup(func() { p.Close(); server.Close() })
	return p, r
}

func pay(mode Mode) Payment {
	return Payment{OrderNo: "O-1", Amount: 1999, Currency: "EUR", Mode: mode}
}

func TestPaymentIsReportedOnceWithAValidSignature(t *testing.T) {
	t.Parallel()
	p, r := setup(t, nil)
	report, err := p.Pay(t.Context(), pay(OK))
	require.NoError(t, err)
	require.Equal(t, 1, report.Accepted)
	require.Len(t, r.all(), 1)
	require.NoError(t, r.all()[0].verdict)
	require.Equal(t, report.Body, r.all()[0].body)
	require.Equal(t, `{"result": "success"}`, report.Attempts[0].Answer)

	var body struct {
		Type string
		Data map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(report.Body), &body))
	require.Equal(t, Succeeded, body.Type)
	require.Equal(t, "merchant-1", body.Data["merchant_id"])
	require.Equal(t, "O-1", body.Data["order_no"])
	require.Equal(t, report.TradeNo, body.Data["trade_no"])
	require.Equal(t, float64(1999), body.Data["amount"])
	require.Equal(t, "EUR", body.Data["currency"])
	require.NotEmpty(t, body.Data["paid_at"])
}

func TestCopiesAreTheSameBytesUnderOneIDAndRunAtOnce(t *testing.T) {
	t.Parallel()
	together := make(chan struct{})
	var once sync.Once
	p, r := setup(t, func(n int) int {
		if n == 5 {
			once.Do(func() { close(together) })
		}
		select { // answered only when five are here at the same time
		case <-together:
			return http.StatusOK
		case <-time.After(time.Minute):
			return http.StatusInternalServerError
		}
	})
	in := pay(OK)
	in.Copies, in.Parallel = 5, 5
	report, err := p.Pay(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, 5, report.Accepted)
	require.Equal(t, 5, r.most)
	for _, got := range r.all() {
		require.Equal(t, report.Body, got.body)
		require.Equal(t, report.Attempts[0].WebhookID, got.id)
	}
}

func TestParallelBoundsHowManyRunAtOnce(t *testing.T) {
	t.Parallel()
	p, r := setup(t, nil)
	in := pay(OK)
	in.Copies = 20
	_, err := p.Pay(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, 1, r.most)
	require.Len(t, r.all(), 20)
}

func TestReportingATradeAgainSendsTheSameBytes(t *testing.T) {
	t.Parallel()
	p, _ := setup(t, nil)
	first, err := p.Pay(t.Context(), pay(OK))
	require.NoError(t, err)
	in := pay(OK)
	in.TradeNo = first.TradeNo
	again, err := p.Pay(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, first.Body, again.Body)
	require.Equal(t, first.Attempts[0].WebhookID, again.Attempts[0].WebhookID)
}

func TestAnythingButSuccessIsRetriedWithTheSameBytesAndId(t *testing.T) {
	t.Parallel()
	p, r := setup(t, func(n int) int { return []int{http.StatusServiceUnavailable, http.StatusAccepted, http.StatusOK}[n-1] })
	report, err := p.Pay(t.Context(), pay(OK))
	require.NoError(t, err)
	require.Equal(t, 1, report.Accepted)
	require.Equal(t, []int{503, 202, 200}, statuses(report))
	for _, got := range r.all() {
		require.NoError(t, got.verdict, "each attempt is signed for its own time")
		require.Equal(t, report.Body, got.body)
		require.Equal(t, report.Attempts[0].WebhookID, got.id)
	}
}

func TestRetriesAreBounded(t *testing.T) {
	t.Parallel()
	p, _ := setup(t, func(int) int { return http.StatusInternalServerError })
	report, err := p.Pay(t.Context(), pay(OK))
	require.NoError(t, err)
	require.Zero(t, report.Accepted)
	require.Equal(t, []int{500, 500, 500, 500, 500}, statuses(report))
}

func TestUnreachableServiceIsReportedAsNoAnswer(t *testing.T) {
	t.Parallel()
	p, err := New("http://127.0.0.1:1", "m", mustSecrets(t))
	require.NoError(t, err)
	in := pay(OK)
	in.Attempts = 1
	report, err := p.Pay(t.Context(), in)
	require.NoError(t, err)
	require.Zero(t, report.Attempts[0].Status)
	require.NotEmpty(t, report.Attempts[0].Error)
}

func TestModesBreakExactlyOneThing(t *testing.T) {
	t.Parallel()
	for mode, want := range map[Mode]error{
		OK: nil, WrongAmount: nil, NewIDs: nil,
		BadSignature: webhook.RefusedSignature, Stale: webhook.RefusedTooOld, Future: webhook.RefusedTooNew,
	} {
		p, r := setup(t, nil)
		in := pay(mode)
		in.Copies = 3
		report, err := p.Pay(t.Context(), in)
		require.NoError(t, err)
		ids := map[string]bool{}
		for _, got := range r.all() {
			require.Equal(t, want, got.verdict, mode)
			require.Equal(t, mode == WrongAmount, strings.Contains(got.body, `"amount":2000,`), mode)
			require.Contains(t, got.body, report.TradeNo)
			ids[got.id] = true
		}
		if mode == NewIDs {
			require.Len(t, ids, 3)
		} else {
			require.Len(t, ids, 1, mode)
		}
	}
}

func TestCallbackThatCanOnlyBeRefusedIsSentOnce(t *testing.T) {
	t.Parallel()
	p, r := setup(t, func(int) int { return http.StatusUnauthorized })
	for _, mode := range []Mode{BadSignature, Stale, Future} {
		_, err := p.Pay(t.Context(), pay(mode))
		require.NoError(t, err)
	}
	require.Len(t, r.all(), 3)
}

func TestHungUpCallbackArrivesAndIsSentAgain(t *testing.T) {
	t.Parallel()
	p, r := setup(t, nil)
	report, err := p.Pay(t.Context(), pay(HangUp))
	require.NoError(t, err)
	require.Equal(t, []int{0, 200}, statuses(report))
	require.Equal(t, errHungUp.Error(), report.Attempts[0].Error)
	require.Eventually(t, func() bool { return len(r.all()) == 2 }, time.Minute, 5*time.Millisecond, "the first one came in whole")
	require.Equal(t, r.all()[0].body, r.all()[1].body)
}

func TestLateCallbackWaits(t *testing.T) {
	t.Parallel()
	p, r := setup(t, nil)
	in := pay(OK)
	in.DelayMS = 60
	begin := time.Now()
	_, err := p.Pay(t.Context(), in)
	require.NoError(t, err)
	require.GreaterOrEqual(t, r.all()[0].at.Sub(begin), 60*time.Millisecond)
}

func TestCancelledPayEndsAtOnce(t *testing.T) {
	t.Parallel()
	p, r := setup(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in := pay(OK)
	in.DelayMS = maxDelayMS
	_, err := p.Pay(ctx, in)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, r.all())
}

func TestImpossiblePaymentsAreRefused(t *testing.T) {
	t.Parallel()
	p, r := setup(t, nil)
	for name, spoil := range map[string]func(*Payment){
		"no order":     func(p *Payment) { p.OrderNo = "" },
		"no money":     func(p *Payment) { p.Amount = 0 },
		"no currency":  func(p *Payment) { p.Currency = "" },
		"unknown mode": func(p *Payment) { p.Mode = "polite" },
		"flood":        func(p *Payment) { p.Copies = maxCopies + 1 },
		"wide flood":   func(p *Payment) { p.Parallel = maxParallel + 1 },
		"next week":    func(p *Payment) { p.DelayMS = maxDelayMS + 1 },
		"for ever":     func(p *Payment) { p.Attempts = maxAttempts + 1 },
	} {
		in := pay(OK)
		spoil(&in)
		_, err := p.Pay(t.Context(), in)
		require.Error(t, err, name)
	}
	require.Empty(t, r.all())
}

func TestPayOverHTTPAnswersWithTheReport(t *testing.T) {
	t.Parallel()
	p, _ := setup(t, nil)
	api := httptest.NewServer(p)
	defer api.Close()
	post := func(body string) (int, string) {
		req, err := http.NewRequest(http.MethodPost, api.URL+"/pay", strings.NewReader(body))
		require.NoError(t, err)
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		answer, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(answer)
	}
	status, answer := post(`{"order_no": "O-1", "amount": 5, "currency": "EUR", "copies": 2}`)
	require.Equal(t, http.StatusOK, status)
	var report Report
	require.NoError(t, json.Unmarshal([]byte(answer), &report))
	require.Equal(t, 2, report.Accepted)

	status, answer = post(`{"order_no": "O-1", "amount": 5, "currency": "EUR", "moed": "stale"}`)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, answer, "moed")
	status, _ = post(`{"order_no": "O-1"}`)
	require.Equal(t, http.StatusBadRequest, status)
}

func mustSecrets(t *testing.T) webhook.Secrets {
	s, err := webhook.ParseSecrets(webhook.NewSecret())
	require.NoError(t, err)
	return s
}

func statuses(r Report) (all []int) {
	for _, a := range r.Attempts {
		all = append(all, a.Status)
	}
	return all
}
