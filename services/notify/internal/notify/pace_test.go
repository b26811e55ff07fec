package notify

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/lease"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

func newTestBucket(t *testing.T, rate float64, burst int) *bucket {
	db, err := postgres.Open(t.Context(), testkit.Postgres(t, Migrations...), "test")
	require.NoError(t, err)
	t.Cleanup(func() { postgres.Close(db) })
	return newBucket(db, rate, burst)
}

func TestManyTakersAtOnceTakeNoMoreThanTheBucketHolds(t *testing.T) {
	t.Parallel()
	b := newTestBucket(t, 0.001, 7)
	var taken atomic.Int32
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			if ok, _, err := b.take(t.Context()); err == nil && ok {
				taken.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 7, taken.Load())
	ok, wait, err := b.take(t.Context())
	require.NoError(t, err)
	require.False(t, ok)
	require.InDelta(t, 1000, wait.Seconds(), 60, "the hint is the time until the next token")
}

// The database's clock may step back, and another sender's take may have begun later than ours.
func TestTimeThatGoesBackwardsMakesNoTokens(t *testing.T) {
	t.Parallel()
	b := newTestBucket(t, 1000, 5)
	require.NoError(t, b.db.Exec("UPDATE t_rate_bucket SET tokens = 0, refilled_at = now() + interval '1 hour'").Error)
	for range 20 {
		ok, _, err := b.take(t.Context())
		require.NoError(t, err)
		require.False(t, ok)
	}
}

func TestClaimThatEndsBeforeTheNextTokenIsGivenBack(t *testing.T) {
	t.Parallel()
	b := newTestBucket(t, 0.001, 1)
	long := lease.Rule{Lease: time.Hour, Deadline: time.Second, Margin: time.Second}
	first, err := b.wait(t.Context(), long.Begin("test"))
	require.NoError(t, err)
	first.done()
	short := lease.Rule{Lease: 500 * time.Millisecond, Deadline: 100 * time.Millisecond, Margin: 100 * time.Millisecond}
	_, err = b.wait(t.Context(), short.Begin("test"))
	require.ErrorAs(t, err, new(errNoToken))
	first.done() // once more: it must not free somebody else's turn
	require.Empty(t, b.turn, "the turn is free again")
}

// Every unused token may come on top of what the others send, so a process has one, whatever its number of workers.
func TestProcessHasOneUnusedToken(t *testing.T) {
	t.Parallel()
	b := newTestBucket(t, 1000, 100)
	hold := lease.Rule{Lease: time.Minute, Deadline: time.Second, Margin: time.Second}.Begin("test")
	first, err := b.wait(t.Context(), hold)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = b.wait(ctx, hold)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	first.done()
	second, err := b.wait(t.Context(), hold)
	require.NoError(t, err)
	second.done()
}

func TestTokenThatWasKeptTooLongIsGivenUp(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte(`{"message_id": "m"}`))
	}))
	defer server.Close()
	p := newProvider(server.URL, time.Minute, 1, nil)
	defer p.close()
	used := 0
	send := func(age time.Duration) verdict {
		return p.send(t.Context(), token{taken: time.Now().Add(-age), done: func() { used++ }}, "key", "+1", "text")
	}
	require.Equal(t, verdict{notBegun: true}, send(tokenLife+time.Millisecond))
	require.Zero(t, requests.Load())
	require.NotZero(t, used, "the turn is passed on")
	require.Equal(t, verdict{status: Sent, messageID: "m"}, send(0))
	require.Equal(t, verdict{notBegun: true}, send(tokenLife+time.Millisecond), "on a connection that is open already")
	require.Equal(t, verdict{status: Sent, messageID: "m"}, send(0))
	require.EqualValues(t, 2, requests.Load())
}

func TestAnswersAreJudgedByWhatTheySayOfTheMessage(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]Status{
		200: Unknown, 202: Unknown, // without a message id
		302: Retry, 400: Failed, 401: Retry, 403: Retry, 404: Retry, 405: Retry, 407: Retry, 408: Retry, 409: Failed, 413: Failed,
		422: Failed, 425: Retry, 429: Retry, 500: Unknown, 503: Unknown,
	} {
		require.Equal(t, want, judge(&http.Response{StatusCode: status, Body: http.NoBody}).status, status)
	}
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-7": 0, "soon": 0, "999999999": maxRetryAfter, "Mon, 02 Jan 2006 15:04:05 GMT": 0,
	} {
		require.Equal(t, want, retryAfter(http.Header{"Retry-After": {text}}), text)
	}
	date := time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)
	require.InDelta(t, 60, retryAfter(http.Header{"Retry-After": {date}}).Seconds(), 30, "in whole seconds, and a machine may stall")
}
