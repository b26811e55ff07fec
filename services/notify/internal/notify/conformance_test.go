package notify_test

import (
	"testing"

	"example.com/paycast/services/notify/internal/notify"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	consumertest.Run(t, consumertest.Service{
		Program: "../..", Group: notify.Group, Migrations: notify.Migrations,
		Table: "t_notification_command", Effects: "SELECT count(*) FROM t_notification_command WHERE order_no = ? AND kind = 'PAID'",
		BadData: func(o event.Order) event.Order { o.UserID = ""; return o },
	})
}
