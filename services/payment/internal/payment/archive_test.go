package payment_test

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/services/payment/internal/payment"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/settings"
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

func TestReceiptsAreArchivedAlthoughTheEventsCannotBe(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.pay(s.newOrder(), "trade-1")
	s.exec("update t_callback_receipt set received_at = now() - interval '20 days'")
	s.old(1)
	s.exec("alter table t_outbox_archive rename to t_elsewhere")
	err := payment.Archive(t.Context(), service.Env{"DATABASE_URL": s.dbURL})
	require.ErrorContains(t, err, "archiving t_outbox_event")
	require.Zero(t, s.count("select count(*) from t_callback_receipt"))
	require.Equal(t, 1, s.count("select count(*) from t_callback_receipt_archive"))
}

// old puts n sent events into the outbox, far older than any window.
func (s *stack) old(n int) {
	s.t.Helper()
	s.exec(`insert into t_outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
			destination, message_key, payload, headers, status, broker_partition, broker_offset, created_at, sent_at)
		select 'old' || n, 'Order', 'old' || n, 1, 'OrderCreated', 1, 'order-events', 'old' || n, '{}', '', 'SENT', 0, n,
			now() - interval '40 days', now() - interval '40 days' from generate_series(1, $1::int) n`, n)
}

// TestRelayWithAWindowArchivesUnderARoleThatMayMakeNoTables is the timer's first run.
func TestRelayWithAWindowArchivesUnderARoleThatMayMakeNoTables(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	address, err := url.Parse(s.dbURL)
	require.NoError(t, err)
	role := "rows_" + strings.TrimPrefix(address.Path, "/")
	s.exec("create role " + role + " login password 'p'")
	t.Cleanup(func() {
		_, err := s.db.Exec(context.Background(), "drop owned by "+role+"; drop role "+role)
		require.NoError(t, err)
	})
	s.exec("grant select, insert, update, delete on all tables in schema public to " + role)
	address.User = url.UserPassword(role, "p")
	db, err := postgres.Open(t.Context(), address.String(), "test")
	require.NoError(t, err)
	require.Error(t, db.Exec("create table public.x ()").Error)
	postgres.Close(db)

	s.old(3)
	broker := testkit.Kafka(t, event.Topic)
	maps.Copy(s.env, service.Env{"DATABASE_URL": address.String(), "KAFKA_BROKERS": broker.Brokers(), "ARCHIVE_AFTER": "400h"})
	_, ops := s.start(payment.Relay)
	testkit.Eventually(t, 90*time.Second, func() error {
		if n := s.count("select count(*) from t_outbox_archive"); n != 3 {
			return fmt.Errorf("%d of 3 archived", n)
		}
		return nil
	})
	require.Zero(t, s.count("select count(*) from t_outbox_event"))
	var report settings.Report
	require.NoError(t, ops.GetJSON(t.Context(), "/ops/settings", nil, &report))
	require.Equal(t, []settings.Window{
		{Of: "sent events", Keeps: settings.Duration(400 * time.Hour)}, {Of: "callback receipts", Keeps: settings.Duration(400 * time.Hour)},
	}, report.Windows)

	err = payment.Relay(t.Context(), service.Env{"DATABASE_URL": s.dbURL, "KAFKA_BROKERS": broker.Brokers(), "OPS_ADDR": "127.0.0.1:0", "ARCHIVE_AFTER": "24h"})
	requireConfigError(t, err, "ARCHIVE_AFTER", "window 24h0m0s is too short", "168h0m0s")
}

// TestArchiverKilledBetweenCopyAndDeleteLeavesEachRowInOnePlaceAndTheNextRunGoesOn: the first batch is through, the second is copied.
func TestArchiverKilledBetweenCopyAndDeleteLeavesEachRowInOnePlaceAndTheNextRunGoesOn(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	const rows, batch = 1500, 1000
	s.old(rows)
	s.exec(`create function hold() returns trigger language plpgsql as $$ begin
		if (select count(*) from t_outbox_archive) > 1000 then ` + waitForTest + ` end if; return null; end $$`)
	s.exec("create trigger hold before delete on t_outbox_event for each statement execute function hold()")
	release := s.hold()
	p := testkit.Exec(t, program, s.env, "archive")
	const held = "from pg_stat_activity where datname = current_database() and application_name = 'payment-archive' and wait_event = 'advisory'"
	testkit.Eventually(t, 90*time.Second, func() error {
		if s.count("select count(*) "+held) == 0 {
			return fmt.Errorf("it is not between copy and delete")
		}
		return nil
	})
	p.Kill()
	s.exec("select pg_terminate_backend(pid, 60000) " + held) // the server would notice at its next write to the client
	release()
	places := func() (outbox, archive, both int) {
		require.NoError(t, s.db.QueryRow(t.Context(), `select (select count(*) from t_outbox_event), (select count(*) from t_outbox_archive),
			(select count(*) from t_outbox_event join t_outbox_archive using (event_id))`).Scan(&outbox, &archive, &both))
		return outbox, archive, both
	}
	left, moved, both := places()
	require.Equal(t, []int{rows - batch, batch, 0}, []int{left, moved, both})
	require.NoError(t, payment.Archive(t.Context(), service.Env{"DATABASE_URL": s.dbURL}))
	left, moved, both = places()
	require.Equal(t, []int{0, rows, 0}, []int{left, moved, both})
}
