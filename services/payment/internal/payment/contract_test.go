package payment_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// TestWhatTheOutboxHoldsFitsTheContractThatConsumersAreGiven: every event that this service can make, as it is stored.
func TestWhatTheOutboxHoldsFitsTheContractThatConsumersAreGiven(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	canceled, paid, closed := s.newOrder(), s.newOrder(), s.newOrder()
	s.cancel(canceled)
	s.pay(paid, uuid.NewString())
	s.cancel(paid)
	s.callback(uuid.NewString(), encode(t, notice("payment.closed", closed, uuid.NewString())))

	rows, err := s.db.Query(t.Context(), "select event_type, event_version, payload from t_outbox_event")
	require.NoError(t, err)
	seen := map[string]int{}
	for rows.Next() {
		var kind, payload string
		var version int
		require.NoError(t, rows.Scan(&kind, &version, &payload))
		compiler := jsonschema.NewCompiler()
		compiler.AssertFormat()
		schema, err := compiler.Compile("../../../../docs/schemas/" + kind + "/" + strconv.Itoa(version) + ".json")
		require.NoError(t, err)
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(payload))
		require.NoError(t, err)
		require.NoError(t, schema.Validate(value), "%s %s", kind, payload)
		seen[kind]++
	}
	require.NoError(t, rows.Err())
	require.Equal(t, map[string]int{"OrderCreated": 3, "PaymentSucceeded": 1, "OrderCanceled": 2, "OrderClosed": 1}, seen)
}
