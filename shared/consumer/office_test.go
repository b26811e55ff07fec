package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
)

func TestAnOperatorReleasesADeadLetterAndWhatItHeldFollows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	var mended atomic.Bool
	w.run(consumer.InTransaction(func(_ context.Context, tx *gorm.DB, e event.Event) error {
		if !mended.Load() && e.Type == event.PaymentSucceeded {
			return consumer.BadData(errors.New("cannot be handled by this build"))
		}
		return effect(tx, e)
	}), nil)
	w.send(paid("o-1"), consumertest.Canceled("o-1", "ann"))
	w.eventually("one is dead and one is held", func() bool { return w.rows("DEAD") == 1 && w.rows("WAITING") == 1 })

	var list struct {
		Letters []struct {
			LetterID   int64  `json:"letter_id"`
			ErrorClass string `json:"error_class"`
			Owner      string
		}
	}
	w.opsJSON("/ops/dead-letters?state=OPEN", &list)
	require.Len(t, list.Letters, 1)
	require.Equal(t, group, list.Letters[0].Owner)
	at := fmt.Sprintf("/ops/dead-letters/%d", list.Letters[0].LetterID)

	_, body := w.ops(http.MethodGet, "/ops/dead-letters", "")
	require.NotContains(t, body, "YW5u", "no contents in lists")
	_, body = w.ops(http.MethodGet, at, "")
	require.NotContains(t, body, "payload\"", "no contents unless asked for")
	var shown struct {
		Contents struct{ Key, Payload []byte }
	}
	status, _ := w.ops(http.MethodPost, at+"/contents", `{}`)
	require.Equal(t, http.StatusBadRequest, status, "nobody in particular sees nothing")
	status, body = w.ops(http.MethodPost, at+"/contents?dry_run=true", `{"actor": "ann", "reason": "the customer asks"}`)
	require.Equal(t, http.StatusOK, status, "there is no looking without being seen")
	require.NoError(t, json.Unmarshal([]byte(body), &shown))
	require.Equal(t, paid("o-1").Payload, shown.Contents.Payload)

	status, _ = w.ops(http.MethodPost, at+"/release", `{"actor": "ann"}`)
	require.Equal(t, http.StatusBadRequest, status, "a reason is needed")
	status, _ = w.ops(http.MethodPost, at+"/forget", `{"actor": "ann", "reason": "x"}`)
	require.Equal(t, http.StatusNotFound, status)
	status, _ = w.ops(http.MethodPost, "/ops/dead-letters/999/release", `{"actor": "ann", "reason": "x"}`)
	require.Equal(t, http.StatusNotFound, status)

	status, body = w.ops(http.MethodPost, at+"/release?dry_run=true", `{"actor": "ann", "reason": "may I?"}`)
	require.Equal(t, http.StatusOK, status, body)
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_dead_letter WHERE state = 'OPEN'"), "a dry run changes nothing")
	mended.Store(true)
	status, body = w.ops(http.MethodPost, at+"/release", `{"actor": "ann", "reason": "the build is mended"}`)
	require.Equal(t, http.StatusOK, status, body)
	w.eventually("both are done", func() bool { return w.rows("SUCCESS") == 2 })
	require.EqualValues(t, 2, w.count("SELECT count(*) FROM t_effect"))
	status, _ = w.ops(http.MethodPost, at+"/release", `{"actor": "bob", "reason": "me too"}`)
	require.Equal(t, http.StatusConflict, status)
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_dead_letter WHERE state = 'RELEASED' AND closed_by = 'ann'"))
	var acts struct {
		Audit []struct{ Actor, Verb, Reason string }
	}
	w.opsJSON(at, &acts)
	require.Len(t, acts.Audit, 2, "who saw the contents, and who released it; refused and dry runs leave nothing")
	require.Equal(t, "the build is mended", acts.Audit[1].Reason)
}

func TestACustomersMessagesAreErasedOnRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.run(consumer.InTransaction(func(_ context.Context, _ *gorm.DB, e event.Event) error {
		if e.AggregateID == "o-3" {
			return errors.New("not now")
		}
		return consumer.BadData(errors.New("no"))
	}), func(c *consumer.Config) { c.Backoff, c.MaxBackoff = time.Hour, time.Hour })
	w.send(paid("o-1"), consumertest.Paid("o-2", "bob"), paid("o-3"), consumertest.Canceled("o-3", "ann"))
	w.eventually("two are dead, one is in the lane and one behind it", func() bool {
		return w.rows("DEAD") == 2 && w.rows("RETRY") == 1 && w.rows("WAITING") == 1
	})
	status, _ := w.ops(http.MethodPost, "/ops/dead-letters/erase", `{"actor": "eve", "reason": "asked by the customer"}`)
	require.Equal(t, http.StatusBadRequest, status)
	const ask = `{"actor": "eve", "reason": "asked by the customer", "user_id": "ann"}`
	for _, mode := range []string{"?dry_run=true", ""} {
		require.EqualValues(t, 2, w.count("SELECT count(*) FROM t_message_retry"), "a dry run changes nothing")
		status, body := w.ops(http.MethodPost, "/ops/dead-letters/erase"+mode, ask)
		require.Equal(t, http.StatusOK, status, body)
		require.JSONEq(t, `{"group": "g", "erased": 3}`, body)
	}
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_dead_letter WHERE payload IS NULL AND state = 'DISCARDED'"))
	require.Zero(t, w.count("SELECT count(*) FROM t_message_retry"))
	require.EqualValues(t, 3, w.count("SELECT count(*) FROM t_message_consume WHERE status = 'REJECTED' AND outcome = 'discarded'"))
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_audit WHERE verb = 'erase' AND actor = 'eve' AND object = 'letters'"))
	require.EqualValues(t, 2, w.count("SELECT count(*) FROM t_audit WHERE verb = 'erase' AND actor = 'eve' AND object IN (?, ?)",
		"event/"+paid("o-3").ID, "event/"+consumertest.Canceled("o-3", "ann").ID))
}

func TestOperationsAreClosedWithoutTheToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.run(consumer.InTransaction(func(context.Context, *gorm.DB, event.Event) error { return nil }), nil)
	w.eventually("it is up", func() bool { status, _ := w.ops(http.MethodGet, "/healthz", ""); return status == http.StatusOK })
	for _, path := range []string{"/ops/facts", "/ops/consume-log", "/ops/dead-letters", "/ops/dead-letters/1"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.opsAddr+path, nil)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusUnauthorized, resp.StatusCode, path)
	}
}

func TestTheConsumeLogIsListedInPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.run(consumer.InTransaction(func(_ context.Context, _ *gorm.DB, e event.Event) error {
		if e.AggregateID == "a" {
			return consumer.Ignored
		}
		return nil
	}), nil)
	w.send(paid("a"), paid("b"), paid("c"))
	w.eventually("all are done", func() bool { return w.rows("SUCCESS") == 3 })
	seen, after := 0, ""
	for {
		var page struct {
			Rows []map[string]any
			Next string
		}
		w.opsJSON("/ops/consume-log?limit=2&after="+after, &page)
		seen += len(page.Rows)
		if after = page.Next; after == "" {
			break
		}
	}
	require.Equal(t, 3, seen)
	var one struct{ Rows []map[string]any }
	w.opsJSON("/ops/consume-log?order_no=a", &one)
	require.Len(t, one.Rows, 1)
	require.Equal(t, "ignored", one.Rows[0]["outcome"])
	status, _ := w.ops(http.MethodGet, "/ops/consume-log?limit=0", "")
	require.Equal(t, http.StatusBadRequest, status)
}
