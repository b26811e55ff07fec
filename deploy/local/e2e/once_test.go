package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/paycast/deploy/local/internal/ask"
)

func TestWhateverHappensEachPaymentHasItsEffectsOnce(t *testing.T) {
	t.Parallel()
	s := up(t, t.TempDir(), "--replicas", "points=2,relay=2")

	t.Run("50 copies of one callback at once: one event, credit, SMS and document", func(t *testing.T) {
		o, report := s.paidBy("fifty", func(c *ask.Callbacks) { c.Copies, c.Parallel = 50, 50 })
		answers, ids := report.Answers()
		require.Equal(t, []int{50, 1, 1}, []int{report.Accepted, answers, ids}, "every copy gets the same answer")
		s.requireOneOfEach(o, "fifty")
	})
	t.Run("one trade under several webhook ids: one event, credit, SMS and document", func(t *testing.T) {
		o, report := s.paidBy("ids", func(c *ask.Callbacks) { c.Copies, c.Parallel, c.Mode = 5, 5, "new_ids" })
		_, ids := report.Answers()
		require.Equal(t, []int{5, 5}, []int{report.Accepted, ids})
		s.requireOneOfEach(o, "ids")
	})
	t.Run("a forged callback and one for the wrong amount change nothing", func(t *testing.T) {
		o, report := s.paidBy("forged", func(c *ask.Callbacks) { c.Mode = "bad_signature" })
		require.Equal(t, http.StatusUnauthorized, report.Attempts[0].Status)
		_, report = s.paidBy("forged", func(c *ask.Callbacks) { c.Mode = "wrong_amount" })
		require.Equal(t, http.StatusOK, report.Attempts[0].Status)
		o, err := s.Order(t.Context(), o.OrderNo)
		require.NoError(t, err)
		require.Equal(t, "CREATED", o.Status)
		require.Len(t, o.Incidents, 1)
		rows, err := s.Paid(t.Context(), o.OrderNo)
		require.NoError(t, err)
		require.Empty(t, rows)
	})
	t.Run("relays, consumers, Kafka and Elasticsearch killed under load: nothing lost, nothing doubled", s.killsUnderLoad)
	s.requireAgreement()
}

// killsUnderLoad pays many orders, a tenth of them by three callbacks at once, while processes die all the time.
func (s *system) killsUnderLoad(t *testing.T) {
	load := exec.CommandContext(t.Context(), binary(t, "world"), "load")
	load.Env = append(os.Environ(), fmt.Sprintf("LOAD_ORDERS=%d", loadOrders), "LOAD_RATE=25", "PAYMENT_URL="+s.vars["PAYMENT_URL"],
		"MERCHANT_ID="+s.vars["MERCHANT_ID"], "WEBHOOK_SECRET="+s.vars["WEBHOOK_SECRET"])
	var journal, progress bytes.Buffer
	load.Stdout, load.Stderr = &journal, &progress
	require.NoError(t, load.Start())
	ended := make(chan error, 1)
	go func() { ended <- load.Wait() }()
	victims := []string{"relay", "points", "relay-2", "kafka", "points-2", "elasticsearch", "sender", "relay", "search"}
	tick := time.NewTicker(800 * time.Millisecond)
	defer tick.Stop()
	for running := true; running || len(victims) > 0; {
		select {
		case err := <-ended:
			require.NoError(t, err, progress.String())
			running = false
		case <-tick.C:
			if len(victims) > 0 {
				s.do("kill", victims[0])
				s.do("start", victims[0])
				victims = victims[1:]
			}
		}
	}
	var orders []string
	for lines := bufio.NewScanner(&journal); lines.Scan(); {
		var entry struct {
			OrderNo string `json:"order_no"`
			Paid    string `json:"paid"`
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &entry))
		require.Equal(t, "success", entry.Paid, "a callback waits for nothing that was killed")
		orders = append(orders, entry.OrderNo)
	}
	require.Len(t, orders, loadOrders)
	s.requireAgreement()
	require.Eventually(t, func() bool {
		return s.count("NOTIFY", `SELECT count(*) FROM t_notification_command WHERE status <> 'SENT'`) == 0
	},
		patience, 100*time.Millisecond)
	for _, no := range orders {
		require.Eventually(t, func() bool { return s.smsOf(no) == 1 }, patience, 100*time.Millisecond, "one SMS for order %s", no)
		require.Eventually(t, func() bool { // what is still on its way is no disagreement
			return s.count("POINTS", `SELECT count(*) FROM t_ledger WHERE order_no = $1`, no) == 1
		}, patience, 100*time.Millisecond, "one credit for order %s", no)
		require.Eventually(t, func() bool {
			doc, err := s.Document(t.Context(), no)
			return err == nil && doc.Version == 2
		}, patience, 100*time.Millisecond, "version 2 of order %s in the index", no)
	}
}

// count asks a service's database as its owner.
func (s *system) count(service, query string, args ...any) (n int64) {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.vars[service+"_DATABASE_URL"])
	require.NoError(s.t, err)
	defer func() { _ = conn.Close(s.t.Context()) }()
	require.NoError(s.t, conn.QueryRow(s.t.Context(), query, args...).Scan(&n))
	return n
}
