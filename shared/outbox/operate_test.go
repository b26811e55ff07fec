package outbox

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/postgres"
)

func (s *stage) operator() func(path, body string) int {
	s.t.Helper()
	require.NoError(s.t, postgres.Migrate(s.t.Context(), s.url, audit.Migrations))
	o := ops.NewServer("token-of-the-test", prometheus.NewRegistry())
	Mount(o, s.db, s.relay().c.Log)
	return func(path, body string) int {
		s.t.Helper()
		r := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, path, bytes.NewBufferString(body))
		r.Header.Set("Authorization", "Bearer token-of-the-test")
		w := httptest.NewRecorder()
		o.ServeHTTP(w, r)
		return w.Code
	}
}

const because = `{"actor": "anna", "reason": "the limit was raised"}`

func TestReleasedRowGoesOutAndItsTailFollowsInOrder(t *testing.T) {
	t.Parallel()
	s := setup(t)
	post := s.operator()
	s.fill("B", 300, 1)
	s.exec("update t_outbox_event set payload = repeat('x', 1100000) where aggregate_version = 1")
	s.run(func(c *Config) { c.Batch = 50 })
	s.eventually(299, "held_by = 'B-0'")

	require.Equal(t, http.StatusBadRequest, post("/ops/outbox/B-0/release", `{"actor": "anna"}`))
	require.Equal(t, http.StatusNotFound, post("/ops/outbox/none/release", because))
	require.Equal(t, http.StatusConflict, post("/ops/outbox/B-1/release", because))
	s.exec("update t_outbox_event set payload = 'small' where aggregate_version = 1")
	require.Equal(t, http.StatusConflict, post("/ops/outbox/B-1/release?dry_run=true", because))
	require.Equal(t, http.StatusOK, post("/ops/outbox/B-0/release?dry_run=true", because))
	require.Equal(t, 1, s.count("event_id = 'B-0' and status = 'DEAD'"), "a dry run changes nothing")
	require.Equal(t, http.StatusOK, post("/ops/outbox/B-0/release", because))
	s.eventually(300, "status = 'SENT'")
	s.requireOrdered(300)
	require.Equal(t, http.StatusConflict, post("/ops/outbox/B-0/release", because))

	var acts int
	require.NoError(t, s.sql.QueryRow(t.Context(), "select count(*) from t_audit where verb = 'release' and object = 'outbox/B-0' and actor = 'anna'").Scan(&acts))
	require.Equal(t, 1, acts, "refused acts leave no trace")
}

func TestSkippedRowStaysAndItsTailPasses(t *testing.T) {
	t.Parallel()
	s := setup(t)
	post := s.operator()
	s.fill("B", 300, 1)
	s.exec("update t_outbox_event set payload = repeat('x', 1100000) where aggregate_version = 1")
	s.run(func(c *Config) { c.Batch = 50 })
	s.eventually(299, "held_by = 'B-0'")
	require.Equal(t, http.StatusOK, post("/ops/outbox/B-0/skip", because))
	s.eventually(299, "status = 'SENT'")
	require.Equal(t, 1, s.count("status = 'DEAD' and skipped"))
	require.Equal(t, http.StatusConflict, post("/ops/outbox/B-0/skip", because))
	require.Equal(t, http.StatusConflict, post("/ops/outbox/B-0/release", because))
}
