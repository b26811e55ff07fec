package points_test

import (
	"testing"

	"example.com/paycast/services/points/internal/points"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	consumertest.Run(t, consumertest.Service{
		Program: "../..", Group: points.Group, Migrations: points.Migrations,
		Table: "t_ledger", Event: event.PaymentSucceeded, Effects: "SELECT count(*) FROM t_ledger WHERE order_no = ? AND kind = 'CREDIT'",
		Gap:     consumertest.GapAwaited,
		BadData: func(o event.Order) event.Order { o.Currency = "EUX"; return o },
	})
}
