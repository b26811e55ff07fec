package search_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/services/search/internal/search"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/elastic/elastictest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	consumertest.Run(t, consumertest.Service{
		Program: "../..", Group: search.Group, Migrations: search.Migrations, Env: withIndex,
		Table: "t_order_search_projection", Effects: "SELECT count(*) FROM t_order_search_projection WHERE order_no = ? AND last_applied_version >= 2",
		Projection: "SELECT last_applied_version FROM t_order_search_projection WHERE order_no = ?",
		Gap:        consumertest.GapHealed,
		SkipsDead:  true,
		BadData:    func(o event.Order) event.Order { o.UserID = ""; return o },
	})
}

// withIndex gives the service an index of its own, made as in production.
func withIndex(t testing.TB) service.Env {
	_, url := elastictest.Start(t)
	env := service.Env{"DATABASE_URL": testkit.Postgres(t), "ELASTICSEARCH_URL": url}
	require.NoError(t, search.Migrate(t.Context(), env))
	return service.Env{"ELASTICSEARCH_URL": url}
}
