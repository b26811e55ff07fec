package consumer_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
)

// TestAMessageThatWasChangedInTheLaneIsADeadLetterAndIsHandledOnlyWhenItIsPutRight: it cannot be handled, and nothing but a
// dead letter would tell anybody.
func TestAMessageThatWasChangedInTheLaneIsADeadLetterAndIsHandledOnlyWhenItIsPutRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	var mended atomic.Bool
	w.run(consumer.InTransaction(func(_ context.Context, tx *gorm.DB, e event.Event) error {
		if !mended.Load() {
			return errors.New("not now")
		}
		return effect(tx, e)
	}), func(c *consumer.Config) { c.Backoff, c.MaxBackoff, c.FailuresInARow = time.Hour, time.Hour, 100 })
	orders := []string{"headers", "none", "empty", "id", "payload"}
	for _, order := range orders {
		w.send(paid(order), consumertest.Canceled(order, "ann"))
	}
	w.send(paid("sound"))
	w.eventually("all are in the lane", func() bool { return w.rows("RETRY") == 6 && w.rows("WAITING") == 5 })
	require.NoError(t, w.db.Exec("CREATE TABLE backup AS SELECT * FROM t_message_retry").Error)
	renamed := func(id string) string { return base64.StdEncoding.EncodeToString([]byte(id)) }
	w.spoil("headers", "headers = '[{'")
	w.spoil("none", "headers = '[]'")
	w.spoil("empty", "headers = ''")
	w.spoil("id", fmt.Sprintf("headers = convert_to(replace(convert_from(headers, 'UTF8'), '%s', '%s'), 'UTF8')",
		renamed(paid("id").ID), renamed(strings.Repeat("0", len(paid("id").ID)))))
	w.spoil("payload", "payload = payload || ' '")
	mended.Store(true)
	require.NoError(t, w.db.Exec("UPDATE t_message_consume SET next_retry_at = now() WHERE status = 'RETRY'").Error)
	w.eventually("five are dead, and the sound one is done", func() bool { return w.rows("DEAD") == 5 && w.rows("SUCCESS") == 1 })
	require.EqualValues(t, 5, w.rows("WAITING"), "later versions are held")
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_effect"))
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_dead_letter WHERE headers = '[{' AND aggregate_id = 'headers'"), "byte for byte")

	var list struct {
		Letters []struct {
			LetterID  int64  `json:"letter_id"`
			ErrorCode string `json:"error_code"`
			OrderNo   string `json:"order_no"`
		}
	}
	w.opsJSON("/ops/dead-letters?state=OPEN", &list)
	require.Len(t, list.Letters, 5)
	at, codes := map[string]string{}, map[string]string{}
	const why = `{"actor": "ann", "reason": "a slip by hand"}`
	for _, letter := range list.Letters {
		path := fmt.Sprintf("/ops/dead-letters/%d", letter.LetterID)
		at[letter.OrderNo], codes[letter.OrderNo] = path, letter.ErrorCode
		w.opsJSON(path, new(any))
		status, body := w.ops(http.MethodPost, path+"/contents", why)
		require.Equal(t, http.StatusOK, status, body)
		status, body = w.ops(http.MethodPost, path+"/release", why)
		require.Equal(t, http.StatusConflict, status, body)
	}
	require.Equal(t, map[string]string{"headers": "altered", "none": "undecodable", "empty": "altered", "id": "altered", "payload": "altered"}, codes)

	require.NoError(t, w.db.Exec(`UPDATE t_dead_letter d SET headers = b.headers FROM backup b
		WHERE b.event_id = d.event_id AND d.aggregate_id IN ('headers', 'none')`).Error)
	for order, verb := range map[string]string{"headers": "release", "none": "release", "payload": "discard", "id": "skip"} {
		status, body := w.ops(http.MethodPost, at[order]+"/"+verb, why)
		require.Equal(t, http.StatusOK, status, body)
	}
	for order, effects := range map[string]int{"headers": 2, "none": 2, "payload": 1, "id": 1} {
		w.eventually("what was put right is applied, and what was held goes on: "+order, func() bool { return len(w.effects(order)) == effects })
	}
	status, body := w.ops(http.MethodPost, "/ops/dead-letters/erase", `{"actor": "eve", "reason": "asked by the customer", "user_id": "ann"}`)
	require.Equal(t, http.StatusOK, status, body)
	require.Zero(t, w.rows("DEAD"))
	require.Zero(t, w.count("SELECT count(*) FROM t_dead_letter WHERE state = 'OPEN'"))
}

// spoil changes what the lane keeps of an order's payment, as a slip in psql would.
func (w *world) spoil(order, change string) {
	w.t.Helper()
	changed := w.db.Exec("UPDATE t_message_retry SET "+change+" WHERE event_id = ?", paid(order).ID)
	require.NoError(w.t, changed.Error)
	require.EqualValues(w.t, 1, changed.RowsAffected)
}
