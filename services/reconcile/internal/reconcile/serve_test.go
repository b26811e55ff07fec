package reconcile

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/testkit"
)

func TestStartedBeforeItsDatabaseItRunsOnceThatIsThere(t *testing.T) {
	t.Parallel()
	c := client{t, newWorld(t, threeOrders()).env(), token}
	u, err := url.Parse(c.env["DATABASE_URL"])
	require.NoError(t, err)
	link := testkit.Proxy(t, u.Host)
	u.Host = link.Addr()
	c.env["DATABASE_URL"] = u.String()
	link.Cut()
	testkit.Run(t, "reconcile serve", func(ctx context.Context) error { return Serve(ctx, c.env) })
	answers := func(want int) {
		testkit.Eventually(t, soon, func() error {
			status, body, err := c.try("GET", "http://"+c.env["HTTP_ADDR"]+"/runs/"+noRun)
			if err == nil && status != want {
				err = fmt.Errorf("%d %s", status, body)
			}
			return err
		})
	}
	answers(http.StatusServiceUnavailable)
	link.Restore()
	answers(http.StatusNotFound)
	require.Equal(t, Agree, c.run().Status)
}
