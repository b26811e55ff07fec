package payment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/services/payment/internal/payment"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/facts"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

// TestPaidOrderReachesKafkaByteForByte goes the whole way of this service: request, callback, outbox row, record.
func TestPaidOrderReachesKafkaByteForByte(t *testing.T) {
	t.Parallel()
	broker := testkit.Kafka(t, event.Topic)
	s := newStack(t, service.Env{"KAFKA_BROKERS": broker.Brokers()})
	_, relayOps := s.start(payment.Relay)
	no := s.newOrder()
	s.pay(no, "trade-1")

	var sent facts.SourcePage
	require.Eventually(t, func() bool {
		require.NoError(t, s.ops.GetJSON(t.Context(), "/ops/facts", map[string][]string{"order_no": {no}}, &sent))
		events := sent.Orders[0].Events
		return len(events) == 2 && events[0].Status == "SENT" && events[1].Status == "SENT"
	}, soon, 20*time.Millisecond)

	records := testkit.ReadTopic(t, broker.Brokers(), event.Topic)
	require.Len(t, records, 2)
	for i, r := range records {
		var id, payload string
		require.NoError(t, s.db.QueryRow(t.Context(),
			"select event_id, payload from t_outbox_event where aggregate_id = $1 and aggregate_version = $2", no, i+1).Scan(&id, &payload))
		require.Equal(t, no, string(r.Key))
		require.Equal(t, payload, string(r.Value))
		e, err := event.Decode(r)
		require.NoError(t, err)
		fact := sent.Orders[0].Events[i]
		require.Equal(t, id, e.ID)
		require.Equal(t, id, fact.EventID)
		require.Equal(t, e.Hash(), fact.Hash, "the reconciler compares this hash with the consumers'")
		require.Equal(t, event.Topic, fact.Topic)
		require.EqualValues(t, r.Partition, *fact.Partition)
		require.EqualValues(t, r.Offset, *fact.Offset)
	}
	paid, err := event.Decode(records[1])
	require.NoError(t, err)
	require.Equal(t, event.PaymentSucceeded, paid.Type)
	require.Equal(t, event.NewID(event.PaymentSucceeded, no, "trade-1"), paid.ID)
	require.Equal(t, "/paycast/payment", paid.Source)
	o, err := paid.Order()
	require.NoError(t, err)
	paidAt := time.Date(2026, 5, 4, 3, 2, 1, 123456000, time.UTC)
	require.Equal(t, event.Order{
		OrderNo: no, UserID: "u-1", Title: "A blue lamp", Amount: 1999, Currency: "EUR", Status: event.StatusPaid, Version: 2,
		PreviousStatus: event.StatusCreated, CreatedAt: o.CreatedAt, OccurredAt: paid.Time, TradeNo: "trade-1", PaidAt: &paidAt,
	}, o)
	require.NotContains(t, string(records[0].Value)+string(records[1].Value), phone)
	require.NoError(t, relayOps.GetJSON(t.Context(), "/readyz", nil, nil))
}
