package design

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestEveryDesignSendsEveryEventAndSaysSoOnlyThen(t *testing.T) {
	t.Parallel()
	rows := Rows{N: 300, Keys: 20}
	for _, d := range All() {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			url, broker := testkit.Postgres(t), testkit.Kafka(t, Topic)
			require.NoError(t, d.Fill(t.Context(), url, rows))
			conn, err := pgx.Connect(t.Context(), url)
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close(t.Context()) })
			done := func() (is bool) {
				require.NoError(t, conn.QueryRow(t.Context(), d.Done).Scan(&is))
				return is
			}
			require.False(t, done())

			testkit.Run(t, d.Name, func(ctx context.Context) error {
				return d.Run(ctx, Target{DatabaseURL: url, Brokers: broker.Brokers()})
			})
			require.Eventually(t, done, 30*time.Second, 20*time.Millisecond)
			if d.Silent {
				return
			}
			sent := map[string]bool{}
			for _, r := range testkit.ReadTopic(t, broker.Brokers(), Topic) {
				require.Len(t, r.Value, payloadBytes)
				for _, h := range r.Headers {
					if h.Key == "ce_id" {
						sent[string(h.Value)] = true
					}
				}
			}
			require.Len(t, sent, rows.N)
		})
	}
}
