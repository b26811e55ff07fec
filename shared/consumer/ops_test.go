package consumer_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/event"
)

func TestAWordThatIsNoStatusIsRefusedWithTheWordsThereAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.run(consumer.InTransaction(func(context.Context, *gorm.DB, event.Event) error { return nil }), nil)
	w.eventually("it is up", func() bool { status, _ := w.ops(http.MethodGet, "/healthz", ""); return status == http.StatusOK })
	for path, words := range map[string]string{
		"/ops/consume-log?status=": "status must be PROCESSING, SUCCESS, RETRY, WAITING, REJECTED or DEAD",
		"/ops/dead-letters?state=": "state must be OPEN, RELEASED or DISCARDED",
	} {
		for _, word := range []string{"dead", "NONE", "OPEN%20"} {
			status, body := w.ops(http.MethodGet, path+word, "")
			require.Equal(t, http.StatusBadRequest, status, path+word)
			require.Contains(t, body, words)
		}
	}
	for _, path := range []string{
		"/ops/consume-log?status=", "/ops/consume-log?status=PROCESSING", "/ops/consume-log?status=DEAD",
		"/ops/dead-letters?state=", "/ops/dead-letters?state=OPEN", "/ops/dead-letters?state=DISCARDED",
	} {
		status, body := w.ops(http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, status, body)
	}
}

func TestOperationsAreUnavailableWhileTheDatabaseIsAwayAndAnswerWhenItIsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	link, db := w.proxied()
	w.run(consumer.InTransaction(func(context.Context, *gorm.DB, event.Event) error { return nil }), func(c *consumer.Config) { c.DB = db })
	paths := []string{"/ops/facts", "/ops/consume-log", "/ops/dead-letters", "/ops/dead-letters/1"}
	w.eventually("it is up", func() bool { status, _ := w.ops(http.MethodGet, paths[0], ""); return status == http.StatusOK })
	link.Cut()
	for _, path := range paths {
		status, body := w.ops(http.MethodGet, path, "")
		require.Equal(t, http.StatusServiceUnavailable, status, path)
		require.Contains(t, body, "urn:paycast:problem:unavailable", path)
	}
	status, _ := w.ops(http.MethodPost, "/ops/dead-letters/1/release", `{"actor": "ann", "reason": "r"}`)
	require.Equal(t, http.StatusServiceUnavailable, status)
	link.Restore()
	w.eventually("it answers again", func() bool { status, _ := w.ops(http.MethodGet, paths[0], ""); return status == http.StatusOK })
}
