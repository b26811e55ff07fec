package payment_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/paycast/services/payment/internal/payment"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/outbox"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

func TestSentEventGoesToOneGroupOnceMoreByteForByteFromOutboxAndArchive(t *testing.T) {
	t.Parallel()
	topic, other := event.RedeliveryTopic("points"), event.RedeliveryTopic("notify")
	broker := testkit.Kafka(t, event.Topic, topic, other)
	s := newStack(t, service.Env{"KAFKA_BROKERS": broker.Brokers()})
	_, _ = s.start(payment.Relay)
	no := s.newOrder()
	s.pay(no, "trade-1")
	require.Eventually(t, func() bool {
		var unsent int
		require.NoError(t, s.db.QueryRow(t.Context(), "select count(*) from t_outbox_event where status <> 'SENT'").Scan(&unsent))
		return unsent == 0
	}, soon, 20*time.Millisecond)
	first := testkit.ReadTopic(t, broker.Brokers(), event.Topic)
	require.Len(t, first, 2)
	paid, err := event.Decode(first[1])
	require.NoError(t, err)

	ask := map[string]any{"actor": "ann", "reason": "points lost it", "group": "points", "event_ids": []string{paid.ID}, "replay_id": "r-1"}
	require.NoError(t, s.ops.PostJSON(t.Context(), "/ops/redeliver?dry_run=true", ask, nil))
	require.Empty(t, testkit.ReadTopic(t, broker.Brokers(), topic))
	require.NoError(t, s.ops.PostJSON(t.Context(), "/ops/redeliver", ask, nil))

	// The same from the archive.
	_, err = s.db.Exec(t.Context(), "update t_outbox_event set created_at = now() - interval '40 days', sent_at = now() - interval '40 days'")
	require.NoError(t, err)
	db, err := postgres.Open(t.Context(), s.dbURL, "test")
	require.NoError(t, err)
	defer postgres.Close(db)
	day := 24 * time.Hour
	moved, err := outbox.Archive(t.Context(), db, outbox.Retention{Window: 30 * day, Kafka: 7 * day, Replay: 14 * day})
	require.NoError(t, err)
	require.Equal(t, 2, moved)
	require.NoError(t, s.ops.PostJSON(t.Context(), "/ops/redeliver", ask, nil))

	again := testkit.ReadTopic(t, broker.Brokers(), topic)
	require.Len(t, again, 2)
	for _, r := range again {
		require.Equal(t, first[1].Key, r.Key)
		require.Equal(t, first[1].Partition, r.Partition)
		require.Equal(t, first[1].Value, r.Value)
		last := len(r.Headers) - 1
		require.Equal(t, event.Header{Key: event.ReplayHeader, Value: []byte("r-1")}, r.Headers[last])
		require.Equal(t, first[1].Headers, r.Headers[:last])
		e, err := event.Decode(r)
		require.NoError(t, err)
		require.Equal(t, paid.Hash(), e.Hash(), "the mark is no part of the fact")
	}
	require.Len(t, testkit.ReadTopic(t, broker.Brokers(), event.Topic), 2, "the other groups see nothing")
	require.Empty(t, testkit.ReadTopic(t, broker.Brokers(), other))
	var asked, done int
	require.NoError(t, s.db.QueryRow(t.Context(), `select count(*) filter (where verb = 'redeliver'), count(*) filter (where verb = 'redelivered' and detail = '1 of 1 sent')
		from t_audit where actor = 'ann' and object = 'group/points'`).Scan(&asked, &done))
	require.Equal(t, []int{2, 2}, []int{asked, done})

	var record event.Record
	require.NoError(t, s.ops.GetJSON(t.Context(), "/ops/outbox/"+paid.ID+"/record", nil, &record))
	require.Equal(t, first[1].Value, record.Value)
	require.Equal(t, first[1].Headers, record.Headers)
}

func TestWhatIsNotSentYetOrUnknownIsNotRedelivered(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no := s.newOrder() // no relay runs
	var id string
	require.NoError(t, s.db.QueryRow(context.Background(), "select event_id from t_outbox_event where aggregate_id = $1", no).Scan(&id))
	for _, one := range []string{id, uuid.NewString()} {
		err := s.ops.PostJSON(t.Context(), "/ops/redeliver", map[string]any{"actor": "ann", "reason": "r", "group": "points", "event_ids": []string{one}}, nil)
		var refused *ops.StatusError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, http.StatusConflict, refused.Status)
		require.Contains(t, refused.Detail, "nothing was sent")
		err = s.ops.GetJSON(t.Context(), "/ops/outbox/"+one+"/record", nil, nil)
		require.ErrorAs(t, err, &refused)
		require.Equal(t, http.StatusNotFound, refused.Status)
	}
	require.Error(t, s.ops.PostJSON(t.Context(), "/ops/redeliver", map[string]any{"group": "points", "event_ids": []string{id}}, nil), "nobody in particular sends nothing")
}
