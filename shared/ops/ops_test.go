package ops_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/ops"
)

const token = "0123456789abcdef0123"

func serve(t *testing.T, token string) (*ops.Server, string) {
	t.Helper()
	s := ops.NewServer(token, prometheus.NewRegistry())
	s.Handle("GET /ops/things", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		ops.WriteJSON(w, http.StatusOK, map[string]int{"things": 3})
	}))
	ts := httptest.NewServer(s)
	t.Cleanup(ts.Close)
	return s, ts.URL
}

func get(t *testing.T, url, authorization string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestOperationsAreClosedToAllButTheToken(t *testing.T) {
	t.Parallel()
	_, url := serve(t, token)
	for authorization, want := range map[string]int{
		"": 401, "Bearer ": 401, "Bearer wrong": 401, "Basic " + token: 401, token: 401, "Bearer " + token: 200,
	} {
		status, _ := get(t, url+"/ops/things", authorization)
		require.Equal(t, want, status, authorization)
	}
	status, _ := get(t, url+"/ops/nothing", "")
	require.Equal(t, 401, status, "what does not exist must not be told from what does")
	status, _ = get(t, url+"/ops/nothing", "Bearer "+token)
	require.Equal(t, 404, status)
}

func TestOperationsStayClosedWithoutAConfiguredToken(t *testing.T) {
	t.Parallel()
	_, url := serve(t, "")
	for _, authorization := range []string{"", "Bearer ", "Bearer x"} {
		status, body := get(t, url+"/ops/things", authorization)
		require.Equal(t, 403, status)
		require.Contains(t, body, "OPS_TOKEN")
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		status, _ := get(t, url+path, "")
		require.Equal(t, 200, status, path)
	}
}

func TestWhatMayMeanADryRunIsNeverDone(t *testing.T) {
	t.Parallel()
	s, url := serve(t, token)
	var done atomic.Int32
	s.Handle("GET /ops/act", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { done.Add(1) }))
	for _, query := range []string{
		"dry_run=1", "dry_run=True", "dry_run=yes", "dry_run=true%20", "dry_run=", "dry_run", "dry_run=false&dry_run=true",
		"dry_run=true;late=true", "dry_run=%zz", "late=true&dry_run=0",
	} {
		status, body := get(t, url+"/ops/act?"+query, "Bearer "+token)
		require.Equal(t, http.StatusBadRequest, status, query)
		require.Contains(t, body, "dry_run=true", "what to write")
	}
	require.Zero(t, done.Load())
	for _, query := range []string{"", "dry_run=true", "dry_run=false", "late=true"} {
		status, _ := get(t, url+"/ops/act?"+query, "Bearer "+token)
		require.Equal(t, http.StatusOK, status, query)
	}
	require.EqualValues(t, 4, done.Load())
	status, _ := get(t, url+"/ops/act?dry_run=1", "")
	require.Equal(t, http.StatusUnauthorized, status, "the token comes first")
}

func TestWhatIsNoTextReachesNoOperation(t *testing.T) {
	t.Parallel()
	s, url := serve(t, token)
	var done atomic.Int32
	s.Handle("GET /ops/act/{id}", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { done.Add(1) }))
	for address, want := range map[string]int{
		"a%00b": http.StatusNotFound, "a%ff": http.StatusNotFound,
		"a?group=a%00": http.StatusBadRequest, "a?group=ok&group=%c3": http.StatusBadRequest, "a?a%00=b": http.StatusBadRequest,
	} {
		status, body := get(t, url+"/ops/act/"+address, "Bearer "+token)
		require.Equal(t, want, status, address)
		require.Contains(t, body, "no text")
	}
	require.Zero(t, done.Load())
	status, _ := get(t, url+"/ops/act/%E5%8D%95?group=%F0%9F%98%80", "Bearer "+token)
	require.Equal(t, http.StatusOK, status)
}

func TestABodyIsReadInOneWayOnly(t *testing.T) {
	t.Parallel()
	type asked struct {
		Group string   `json:"group"`
		IDs   []string `json:"ids"`
	}
	read := func(body string) (a asked, err error) {
		return a, ops.ReadJSON(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body)), &a)
	}
	for _, body := range []string{
		"", "x", `"points"`, `{"group":"points"`, `{"group":"points"} x`, `{"group":"points"}{}`, `{"group":"points","dry_run":true}`,
		`{"group":"po\u0000ints"}`, `{"ids":["a","\u0000"]}`, "{\"group\":\"po\xffints\"}",
	} {
		_, err := read(body)
		require.Error(t, err, body)
	}
	_, err := read(`{"group":"points","dry_run":true}`)
	require.ErrorContains(t, err, "dry_run", "which field it does not know")
	a, err := read(` {"group":"po\\u0000ints","ids":["单"]} `)
	require.NoError(t, err)
	require.Equal(t, asked{`po\u0000ints`, []string{"单"}}, a)
}

func TestOneFailingCheckMakesTheProcessNotReadyAndIsNamed(t *testing.T) {
	t.Parallel()
	s, url := serve(t, token)
	s.Ready("postgres", func(context.Context) error { return nil })
	s.Ready("progress", func(context.Context) error { return errors.New("no progress for 30s with lag 12") })
	status, body := get(t, url+"/readyz", "")
	require.Equal(t, 503, status)
	require.JSONEq(t, `{"status":"not ready","checks":{"postgres":"ok","progress":"no progress for 30s with lag 12"}}`, body)
}

func TestACheckThatHangsIsNotReadyAndDoesNotHangTheAnswer(t *testing.T) {
	t.Parallel()
	s, url := serve(t, token)
	s.Ready("broker", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	status, body := get(t, url+"/readyz", "")
	require.Equal(t, 503, status)
	require.Contains(t, body, "deadline")
}

func TestAPatternOutsideOpsIsAProgrammingError(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, token)
	for _, pattern := range []string{"GET /metrics2", "/ops/without-method", "GET ops/x"} {
		require.Panics(t, func() { s.Handle(pattern, http.NotFoundHandler()) }, pattern)
	}
}

func TestTheClientReadsJSONAndExplainsRefusals(t *testing.T) {
	t.Parallel()
	_, url := serve(t, token)
	var out struct{ Things int }
	require.NoError(t, ops.Client{BaseURL: url, Token: token}.GetJSON(t.Context(), "/ops/things", nil, &out))
	require.Equal(t, 3, out.Things)
	err := ops.Client{BaseURL: url, Token: "wrong"}.GetJSON(t.Context(), "/ops/things", nil, &out)
	var refused *ops.StatusError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 401, refused.Status)
	require.Contains(t, err.Error(), "OPS_TOKEN")
	require.False(t, ops.NoOperation(err))
	require.True(t, ops.NoOperation(ops.Client{BaseURL: url, Token: token}.GetJSON(t.Context(), "/ops/nothing", nil, &out)))
}
