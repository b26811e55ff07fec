package points_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/openapitest"
)

// asDescribed asks the API and holds its answer against openapi.yaml.
func (s *stack) asDescribed(path string, status int) []byte {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.env["HTTP_ADDR"]+path, nil)
	require.NoError(s.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	require.Equal(s.t, status, resp.StatusCode, "%s: %s", path, body)
	require.NoError(s.t, openapitest.Check("../../openapi.yaml", req, resp.StatusCode, resp.Header, body))
	return body
}

func TestTheAPIAnswersAsDescribed(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.serve()
	s.send(record(paid("o-1", "ann")), record(paid("o-1b", "ann")))
	s.hasPoints("ann", 24, 2)
	s.asDescribed("/accounts/ann", http.StatusOK)
	require.Contains(t, string(s.asDescribed("/accounts/nobody", http.StatusOK)), `"balance":0,"entries":[]`)
	for _, bad := range []string{"/accounts/ann?limit=0", "/accounts/ann?limit=501", "/accounts/ann?limit=x", "/accounts/ann?after=x", "/accounts/a%00b"} {
		s.asDescribed(bad, http.StatusBadRequest)
	}
	s.byHand("ALTER TABLE t_account RENAME TO t_gone") // one of many reasons why a database does not answer
	s.asDescribed("/accounts/ann", http.StatusServiceUnavailable)
}

func TestEntriesComeInPages(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.serve()
	for i := range 5 {
		s.send(record(paid(fmt.Sprintf("o-%d", i), "ann")))
	}
	s.hasPoints("ann", 60, 5)
	seen, next := map[string]bool{}, ""
	for pages := 0; ; pages++ {
		require.Less(t, pages, 5)
		var page struct {
			Balance int64
			Entries []struct {
				EventID string `json:"event_id"`
			}
			Next string
		}
		require.NoError(t, s.get("HTTP_ADDR", "/accounts/ann?limit=2&after="+next, &page))
		require.EqualValues(t, 60, page.Balance)
		for _, e := range page.Entries {
			seen[e.EventID] = true
		}
		if next = page.Next; next == "" {
			break
		}
	}
	require.Len(t, seen, 5)
}
