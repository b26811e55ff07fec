package payment_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/services/payment/internal/payment"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

func TestArchiveMovesOldSentEventsAndLeavesTheRest(t *testing.T) {
	t.Parallel()
	url := testkit.Postgres(t, payment.Migrations...)
	db, err := postgres.Open(t.Context(), url, "test")
	require.NoError(t, err)
	defer postgres.Close(db)
	require.NoError(t, db.Exec(`
		insert into t_outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
			destination, message_key, payload, headers, status, broker_partition, broker_offset, created_at, sent_at)
		select 'e' || n, 'Order', 'o' || n, 1, 'OrderCreated', 1, 'order-events', 'o' || n, '{}', '',
			case when n = 3 then 'PENDING' else 'SENT' end, case when n = 3 then null else 0 end, case when n = 3 then null else n end,
			now() - n * interval '10 days', case when n = 3 then null else now() - n * interval '10 days' end
		from generate_series(1, 3) n`).Error)
	require.NoError(t, payment.Archive(t.Context(), service.Env{"DATABASE_URL": url}))
	var left, archived []string
	require.NoError(t, db.Raw("select event_id from t_outbox_event order by 1").Scan(&left).Error)
	require.NoError(t, db.Raw("select event_id from t_outbox_archive").Scan(&archived).Error)
	require.Equal(t, []string{"e1", "e3"}, left, "young or unsent")
	require.Equal(t, []string{"e2"}, archived)
}

func TestArchiveWindowBelowTheReplayHorizonIsRefused(t *testing.T) {
	t.Parallel()
	err := payment.Archive(t.Context(), service.Env{"DATABASE_URL": "postgres://x@127.0.0.1:1/x", "ARCHIVE_AFTER": "24h"})
	require.ErrorAs(t, err, new(*service.ConfigError))
	require.ErrorContains(t, err, "too short")
}

func TestArchiveMovesOldReceiptsAndARepetitionStillChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no := s.newOrder()
	s.pay(no, "trade-1")
	_, err := s.db.Exec(t.Context(), "update t_callback_receipt set received_at = now() - interval '20 days'")
	require.NoError(t, err)
	s.pay(s.newOrder(), "trade-2")
	require.NoError(t, payment.Archive(t.Context(), service.Env{"DATABASE_URL": s.dbURL}))
	var left, archived int
	count := "select (select count(*) from t_callback_receipt), (select count(*) from t_callback_receipt_archive)"
	require.NoError(t, s.db.QueryRow(t.Context(), count).Scan(&left, &archived))
	require.Equal(t, []int{1, 1}, []int{left, archived})
	s.pay(no, "trade-1")
	var payments int
	require.NoError(t, s.db.QueryRow(t.Context(), "select count(*) from t_payment where order_no = $1", no).Scan(&payments))
	require.Equal(t, 1, payments)
}
