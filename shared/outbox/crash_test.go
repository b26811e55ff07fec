package outbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/embedded"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

// TestDatabaseKilledUnderARelayCostsCopiesAndNoEventAndNoOrder: a relay does not wait until its claims and settles are on
// disk. This server writes them as late as it can, so that each of its deaths undoes many.
func TestDatabaseKilledUnderARelayCostsCopiesAndNoEventAndNoOrder(t *testing.T) {
	t.Parallel()
	cfg := embedded.PostgresConfig{Dir: t.TempDir(), Settings: map[string]string{
		"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "wal_buffers": "16MB",
	}}
	server, err := embedded.StartPostgres(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Kill()) })
	cfg.Port = server.Port
	url := server.URL("postgres", embedded.Superuser, "")
	require.NoError(t, postgres.Migrate(t.Context(), url, Migrations))
	s := setupOn(t, url)
	s.kafka.DelayProduce(10 * time.Millisecond)
	sends := func(more int) {
		sent := s.count("status = 'SENT'")
		testkit.Eventually(t, soon, func() error {
			if n := s.count("status = 'SENT'"); n < sent+more {
				return fmt.Errorf("%d are sent, of %d", n, sent+more)
			}
			return nil
		})
	}
	const rows, deaths = 600, 3
	s.fill("K", rows, 50)
	s.run(func(c *Config) { c.Batch = 50 })
	called := map[string]time.Time{} // what the table called sent before a death, and since when
	for death := range deaths {
		sends(100)
		s.fill(fmt.Sprint("K", death), rows, 50) // a business commit is on disk, and with it all that was written before
		sends(100)
		s.sentAt(called)
		require.NoError(t, server.Kill())
		again, err := embedded.StartPostgres(t.Context(), cfg)
		require.NoError(t, err)
		server = again
		s.sql.Reset()
		s.leasesRunOut() // of claims whose settle is undone: the relay does not know that
	}
	require.Equal(t, rows+deaths*rows, s.count("true"), "what was committed is there")
	s.eventually(rows+deaths*rows, "status = 'SENT'")
	s.requireOrdered(rows + deaths*rows)
	s.requireSameCopies()
	s.requireTrue()
	undone, now := 0, map[string]time.Time{}
	s.sentAt(now)
	for id, at := range called {
		if !now[id].Equal(at) {
			undone++
		}
	}
	require.Positive(t, undone, "no death has undone a settle, and the test has shown nothing")
}

// sentAt notes when each row was sent.
func (s *stage) sentAt(into map[string]time.Time) {
	s.t.Helper()
	found, err := s.sql.Query(s.t.Context(), "select event_id, sent_at from t_outbox_event where status = 'SENT'")
	require.NoError(s.t, err)
	var id string
	var at time.Time
	_, err = pgx.ForEachRow(found, []any{&id, &at}, func() error {
		into[id] = at
		return nil
	})
	require.NoError(s.t, err)
}
