package points_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/testkit"
)

func TestLostLedgerEntryIsReappliedOnceAndAnEntryThatIsThereStaysOne(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	record := consumertest.Record(paid("o-1", "ann"))
	payment := ops.NewServer(opsToken, prometheus.NewRegistry())
	payment.Handle("GET /ops/outbox/{id}/record", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		ops.WriteJSON(w, http.StatusOK, record)
	}))
	server := httptest.NewServer(payment)
	defer server.Close()
	s.env["PAYMENT_OPS_URL"] = server.URL
	s.serve()
	s.send(record)
	s.hasPoints("ann", 12, 1)
	s.logged("SUCCESS", 1)

	client := ops.Client{BaseURL: "http://" + s.env["OPS_ADDR"], Token: opsToken}
	reapply := func() {
		t.Helper()
		ask := map[string]string{"actor": "eve", "reason": "a restore lost the ledger", "event_id": paid("o-1", "ann").ID}
		require.NoError(t, client.PostJSON(t.Context(), "/ops/reapply", ask, nil))
		testkit.Eventually(t, within, func() error { // the lane has handled it again
			if s.count("SELECT count(*) FROM t_message_consume WHERE status = 'SUCCESS' AND replay_id IS NOT NULL") == 1 {
				return nil
			}
			return http.ErrNoLocation
		})
	}
	// A restore from a backup, as it were: entry and balance are gone, the consume log is not.
	for _, sql := range []string{"ALTER TABLE t_ledger DISABLE TRIGGER ledger_append_only", "DELETE FROM t_ledger",
		"UPDATE t_account SET balance = 0", "ALTER TABLE t_ledger ENABLE TRIGGER ledger_append_only"} {
		require.NoError(t, s.db.Exec(sql).Error)
	}
	s.hasPoints("ann", 0, 0)
	s.send(record)
	s.logged("SUCCESS", 1)
	reapply()
	s.hasPoints("ann", 12, 1)
	require.NoError(t, s.db.Exec("UPDATE t_message_consume SET replay_id = NULL").Error)
	reapply()
	s.hasPoints("ann", 12, 1)
	require.EqualValues(t, 2, s.count("SELECT count(*) FROM t_audit WHERE verb = 'reapply' AND actor = 'eve'"))
}
