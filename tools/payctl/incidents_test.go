package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
	"example.com/paycast/shared/webhook"
)

// till is the payment service itself: only it has incidents.
func till(t *testing.T) *stack {
	t.Helper()
	const program = "example.com/paycast/services/payment"
	env := service.Env{
		"DATABASE_URL": testkit.Postgres(t), "WEBHOOK_SECRETS": webhook.NewSecret(), "MERCHANT_ID": "m", "OPS_TOKEN": token,
		"HTTP_ADDR": testkit.FreeAddr(t), "OPS_ADDR": testkit.FreeAddr(t), "LOG_LEVEL": "error",
	}
	require.NoError(t, testkit.Exec(t, program, env, "migrate").Wait(soon))
	testkit.Exec(t, program, env, "api").WaitReady(env["OPS_ADDR"], soon)
	s := &stack{t: t, env: service.Env{"OPS_TOKEN": token, "PAYMENT_OPS_URL": "http://" + env["OPS_ADDR"]}}
	var err error
	s.db, err = postgres.Open(t.Context(), env["DATABASE_URL"], "test")
	require.NoError(t, err)
	t.Cleanup(func() { postgres.Close(s.db) })
	return s
}

func TestIncidentIsSeenAndResolvedWithItsAuditRowAndOneRefusalStopsNoOther(t *testing.T) {
	t.Parallel()
	s := till(t)
	s.exec(`insert into t_incident (kind, order_no, trade_no, expected, received)
		select 'wrong_amount', 'O-' || i, 'T', '19.99 EUR', '0.01 EUR' from generate_series(1, 3) i order by i`)
	var rows []row
	s.json(exitOK, &rows, "incidents", "list")
	require.Len(t, rows, 3)

	resolve := []string{"incidents", "resolve", "1", "--by", "anna", "--reason", "sent back, ticket 7"}
	code, out, complain := s.payctl(resolve...)
	require.Equal(t, exitOK, code, complain)
	require.Contains(t, out, "would resolve incident 1 of payment (wrong_amount, order O-1)")
	require.Contains(t, out, "OPEN → RESOLVED")
	require.Contains(t, out, nothingChanged)
	require.Equal(t, 3, s.count("t_incident where state = 'OPEN'"))
	code, _, complain = s.payctl("incidents", "resolve", "1", "--yes")
	require.Equal(t, exitUsage, code)
	require.Contains(t, complain, "--reason")

	for range 2 { // the second time it is the same answer
		code, out, complain = s.payctl(append(resolve, "--yes")...)
		require.Equal(t, exitOK, code, complain)
		require.Contains(t, out, "done: resolve incident 1 of payment")
	}
	require.Equal(t, 1, s.count("t_audit where verb = 'resolve' and actor = 'anna' and reason = 'sent back, ticket 7' and object = 'incident/1'"))
	require.Equal(t, 1, s.count("t_audit"))

	var outcomes []changed
	s.json(exitFailed, &outcomes, "incidents", "resolve", "1", "2", "99", "--by", "bob", "--reason", "sent back", "--yes")
	require.Len(t, outcomes, 3)
	require.Contains(t, outcomes[0].Error, "resolved already")
	require.True(t, outcomes[1].Done)
	require.Contains(t, outcomes[2].Error, "no incident 99 in payment")
	code, out, complain = s.payctl("incidents", "show", "1")
	require.Equal(t, exitOK, code, complain)
	require.Contains(t, out, "sent back, ticket 7")
	require.Contains(t, out, "anna")

	s.json(exitOK, &rows, "incidents", "list")
	require.Len(t, rows, 1, "what still waits for a person")
	s.json(exitOK, &rows, "incidents", "list", "--state", "RESOLVED")
	require.Len(t, rows, 2)
}
