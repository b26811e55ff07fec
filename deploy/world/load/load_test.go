package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/paycast/deploy/world/provider"
	"example.com/paycast/shared/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shop stands where the payment service stands. It fails the orders and callbacks that the test names, by number.
type shop struct {
	mu        sync.Mutex
	orders    map[string]int // by key
	callbacks map[string]int // by order number
	inFlight  int
	most      int

	orderStatus    func(n int) int
	callbackStatus func(orderNo string) int
	hold           time.Duration
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.inFlight--; s.mu.Unlock() }()
	select {
	case <-time.After(s.hold):
	case <-r.Context().Done():
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.URL.Path == "/orders" {
		s.orders[r.Header.Get("Idempotency-Key")]++
		if status := s.orderStatus(len(s.orders)); status != http.StatusCreated {
			w.WriteHeader(status)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"order_no": "O-%d"}`, len(s.orders))
		return
	}
	var c struct {
		Data struct {
			OrderNo string `json:"order_no"`
		}
	}
	if json.Unmarshal(body, &c) == nil {
		s.callbacks[c.Data.OrderNo]++
		w.WriteHeader(s.callbackStatus(c.Data.OrderNo))
	}
}

func setup(t *testing.T, spoil func(*shop)) (Config, *shop) {
	s := &shop{
		orders: map[string]int{}, callbacks: map[string]int{},
		orderStatus: func(int) int { return http.StatusCreated }, callbackStatus: func(string) int { return http.StatusOK },
	}
	if spoil != nil {
		spoil(s)
	}
	server := httptest.NewServer(s)
	secrets, err := webhook.ParseSecrets(webhook.NewSecret())
	require.NoError(t, err)
	p, err := provider.New(server.URL, "m", secrets)
	require.NoError(t, err)
	t.Cleanup(func() { p.Close(); server.Close() })
	return Config{PaymentURL: server.URL, Provider: p, Orders: 20, PerSecond: 500, Parallel: 10, DuplicatePercent: 0}, s
}

func TestEveryOrderIsPaidOnceAndTheJournalSaysSo(t *testing.T) {
	t.Parallel()
	c, s := setup(t, nil)
	j, err := Run(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, Counts{Sent: 20, Success: 20}, j.Counts())
	require.Len(t, s.orders, 20)
	for _, e := range j.Entries() {
		require.Equal(t, 1, s.callbacks[e.OrderNo])
		require.NotEmpty(t, e.TradeNo)
	}
}

func TestDuplicatesAreThePercentageAskedFor(t *testing.T) {
	t.Parallel()
	c, s := setup(t, nil)
	c.DuplicatePercent = 25
	_, err := Run(t.Context(), c)
	require.NoError(t, err)
	byCount := map[int]int{}
	for _, n := range s.callbacks {
		byCount[n]++
	}
	require.Equal(t, map[int]int{1: 15, duplicateCopies: 5}, byCount)
}

func TestRefusedIsFailAndUnansweredIsUnknown(t *testing.T) {
	t.Parallel()
	c, s := setup(t, func(s *shop) {
		s.orderStatus = func(n int) int {
			switch n {
			case 1:
				return http.StatusUnprocessableEntity
			case 2:
				return http.StatusInternalServerError
			}
			return http.StatusCreated
		}
		s.callbackStatus = func(orderNo string) int {
			switch orderNo {
			case "O-3":
				return http.StatusConflict
			case "O-4":
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		}
	})
	c.Orders, c.Parallel = 5, 5
	j, err := Run(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, Counts{Sent: 5, Success: 1, Fail: 2, Unknown: 2}, j.Counts())
	require.Greater(t, s.callbacks["O-3"], 1, "the provider insists")
}

func TestOrdersUnderWayAreBoundedAndTheGeneratorSaysThatItIsBehind(t *testing.T) {
	t.Parallel()
	c, s := setup(t, func(s *shop) { s.hold = 20 * time.Millisecond })
	var progress bytes.Buffer
	c.Parallel, c.PerSecond, c.Progress, c.ProgressEvery = 2, 1000, &progress, time.Hour
	j, err := Run(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, 2, s.most)
	require.Greater(t, j.late, 50*time.Millisecond)
	require.Contains(t, progress.String(), "sent 20/20  success 20  fail 0  unknown 0")
}

func TestRateIsKept(t *testing.T) {
	t.Parallel()
	c, _ := setup(t, nil)
	c.PerSecond = 100
	begin := time.Now()
	_, err := Run(t.Context(), c)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(begin), 190*time.Millisecond, "the 20th order starts after 19 intervals")
}

func TestProgressIsPrintedWhileItRuns(t *testing.T) {
	t.Parallel()
	c, _ := setup(t, func(s *shop) { s.hold = 100 * time.Millisecond })
	lines := make(chan string, 1000)
	c.Progress, c.ProgressEvery, c.Parallel = writer(lines), 5*time.Millisecond, 4
	_, err := Run(t.Context(), c)
	require.NoError(t, err)
	require.Greater(t, len(lines), 3)
}

type writer chan string

func (w writer) Write(b []byte) (int, error) { w <- string(b); return len(b), nil }

func TestCancelledRunStopsAndKeepsItsJournal(t *testing.T) {
	t.Parallel()
	c, _ := setup(t, func(s *shop) { s.hold = time.Minute })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	j, err := Run(ctx, c)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, j.Counts().Sent, j.Counts().Unknown, "what was cut off may have been carried out")
	var out bytes.Buffer
	require.NoError(t, j.Write(&out))
	require.Equal(t, j.Counts().Sent, bytes.Count(out.Bytes(), []byte("\n")))
}

func TestUnboundedRunsAreRefusedWithEveryReason(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), Config{Orders: maxOrders + 1, DuplicatePercent: 101, Progress: io.Discard})
	for _, want := range []string{"address", "orders must", "rate must", "under way", "percent", "interval"} {
		require.ErrorContains(t, err, want)
	}
}
