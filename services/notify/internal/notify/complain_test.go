package notify

import (
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"

	"example.com/paycast/shared/lease"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

func TestDatabaseThatIsAwayIsAWarningAndOneThatRefusesAnError(t *testing.T) {
	t.Parallel()
	here := testkit.Postgres(t, Migrations...)
	away, err := url.Parse(here)
	require.NoError(t, err)
	away.Host = testkit.FreeAddr(t)
	for level, dbURL := range map[slog.Level]string{slog.LevelWarn: away.String(), slog.LevelError: here} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			db, err := postgres.Open(t.Context(), dbURL, "test")
			require.NoError(t, err)
			t.Cleanup(func() { postgres.Close(db) })
			if dbURL == here {
				for _, sql := range []string{
					"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$",
					"CREATE TRIGGER refuse BEFORE UPDATE ON t_notification_command EXECUTE FUNCTION refuse()", // also an update of no row
				} {
					require.NoError(t, db.Exec(sql).Error)
				}
			}
			logs := testkit.Logs()
			s := &sender{
				db: db, bucket: newBucket(db, 1000, 100), provider: newProvider("http://"+testkit.FreeAddr(t), time.Second, 1, nil),
				rule:    lease.Rule{Lease: time.Hour, Deadline: time.Second, Margin: time.Second},
				workers: 1, poll: time.Millisecond, retryBase: time.Second, retryCap: time.Second,
				metrics: newMetrics(prometheus.NewRegistry()), log: slog.New(logs), tracer: noop.NewTracerProvider().Tracer(""),
			}
			t.Cleanup(s.provider.close)
			levels := func(msg string) (all []any) {
				for _, line := range logs.Find(msg) {
					all = append(all, line[slog.LevelKey])
				}
				return all
			}
			sending := testkit.Run(t, "the sender", s.Run)
			testkit.Eventually(t, time.Minute, func() error {
				if n := len(levels("the sender cannot go on for now")); n < 3 {
					return fmt.Errorf("it has complained %d times", n)
				}
				return nil
			})
			require.NoError(t, sending.Stop())
			for _, l := range levels("the sender cannot go on for now") {
				require.Equal(t, level.String(), l)
			}
			testkit.Eventually(t, time.Minute, func() error { // on a slow machine a settle may be too late before it has asked
				s.carryOut(t.Context(), claimed{CommandID: "c", Was: Unknown, hold: s.rule.Begin("test")})
				if all := levels("a command could not be settled"); !slices.Contains(all, any(level.String())) {
					return fmt.Errorf("a settle that fails is logged as %v", all)
				}
				return nil
			})
		})
	}
}
