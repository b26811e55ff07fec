package replay_test

import (
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/archive"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/replay"
	"example.com/paycast/shared/testkit"
)

// orders are those of a plan's messages, sorted.
func (w *world) orders(c ops.Client, id string) (orders []string) {
	w.t.Helper()
	var told struct{ Items []replay.Item }
	require.NoError(w.t, c.GetJSON(w.t.Context(), "/ops/replays/"+id+"/items", nil, &told))
	for _, item := range told.Items {
		orders = append(orders, *item.OrderNo)
	}
	slices.Sort(orders)
	return orders
}

func (w *world) letterOf(order string) (id int64) {
	w.t.Helper()
	require.NoError(w.t, w.db.Raw("SELECT letter_id FROM t_dead_letter WHERE aggregate_id = ?", order).Scan(&id).Error)
	require.NotZero(w.t, id, order)
	return id
}

func TestEachWayOfChoosingTakesThatAndNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.start()
	events := w.letters("o", 4)
	testkit.Produce(t, w.broker.Brokers(), event.Topic, consumertest.Record(consumertest.Canceled("c", "ann")))
	w.until(5, "t_dead_letter WHERE state = 'OPEN'")
	w.exec("UPDATE t_dead_letter SET error_class = 'bad_data' WHERE aggregate_id = 'o-0'")
	w.exec("UPDATE t_dead_letter SET error_code = 'E42' WHERE aggregate_id = 'o-1'")
	w.exec("UPDATE t_dead_letter SET first_seen_at = '2026-01-02T00:00:00Z' WHERE aggregate_id = 'o-2'")
	w.exec("UPDATE t_dead_letter SET state = 'DISCARDED', closed_by = 'ann', closed_reason = 'r', closed_at = now() WHERE aggregate_id = 'o-3'")
	type chosen map[string]any
	for _, one := range []struct {
		by   chosen
		want []string
	}{
		{chosen{"letters": []int64{w.letterOf("o-0"), w.letterOf("o-3")}}, []string{"o-0"}}, // the other one is closed
		{chosen{"class": "bad_data"}, []string{"o-0"}},
		{chosen{"code": "E42"}, []string{"o-1"}},
		{chosen{"event_type": event.OrderCanceled}, []string{"c"}},
		{chosen{"from": "2026-01-02T00:00:00Z", "to": "2026-01-02T00:00:01Z"}, []string{"o-2"}},
		{chosen{"order_nos": []string{"o-1", "c"}}, []string{"c", "o-1"}},
		{chosen{"event_ids": []string{events[2].ID}}, []string{"o-2"}},
		{chosen{"class": "transient", "order_nos": []string{"o-0", "o-1"}}, []string{"o-1"}}, // each narrows
	} {
		job := w.plan(c, one.by, 0)
		require.Equal(t, one.want, w.orders(c, job.JobID), one.by)
		require.Equal(t, map[string]int64{"new": int64(len(one.want))}, job.Forecasts, one.by)
	}
	plans := w.count("t_replay_job")
	for words, by := range map[string]chosen{
		"nothing of this group matches": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}, // its end is not part of it
		"from must be before to":        {"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"},
		"not everything there is":       {},
	} {
		err := c.PostJSON(t.Context(), "/ops/replays", body(map[string]any{"selection": by}), nil)
		refused(t, err, http.StatusBadRequest, words)
	}
	require.Equal(t, plans, w.count("t_replay_job"), "a choice that cannot be used plans nothing")
}

// TestPlanTellsWhatEachMessageWouldDo: what is new is told in most of the other tests.
func TestPlanTellsWhatEachMessageWouldDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.start()
	brokers := w.broker.Brokers()
	paid := map[string]event.Event{}
	for _, order := range []string{"passed", "held", "changed", "spoiled", "discarded"} {
		paid[order] = consumertest.Paid(order, "ann")
		testkit.Produce(t, brokers, event.Topic, consumertest.Record(paid[order]))
	}
	w.until(5, "t_dead_letter WHERE state = 'OPEN'")
	canceled := consumertest.Canceled("held", "ann")
	w.sent[canceled.ID] = consumertest.Record(canceled) // and the group has not seen it
	w.exec("UPDATE t_dead_letter SET payload = payload || ' ' WHERE aggregate_id = 'changed'")
	w.exec("UPDATE t_dead_letter SET headers = 'no JSON' WHERE aggregate_id = 'spoiled'")
	for order, verb := range map[string]string{"passed": "skip", "discarded": "discard"} {
		require.NoError(t, c.PostJSON(t.Context(), "/ops/dead-letters/"+strconv.FormatInt(w.letterOf(order), 10)+"/"+verb, body(nil), nil))
	}
	w.mended.Store(true)
	done, old, twice := consumertest.Paid("done", "ann"), consumertest.Paid("old", "ann"), consumertest.Record(consumertest.Paid("twice", "ann"))
	second := twice
	second.Value = append([]byte(" "), twice.Value...)
	w.sent[old.ID] = consumertest.Record(old)
	testkit.Produce(t, brokers, event.Topic, consumertest.Record(done), consumertest.Record(old), twice, second,
		consumertest.Record(consumertest.Canceled("passed", "ann")), event.Record{Key: []byte("x"), Value: []byte("garbage")})
	w.until(4, "t_message_consume WHERE status = 'SUCCESS'")
	w.until(2, "t_dead_letter WHERE error_class IN ('conflict', 'undecodable')")
	w.exec("UPDATE t_message_consume SET first_received_at = now() - interval '40 days', updated_at = now() - interval '40 days' WHERE event_id = ?", old.ID)
	day := 24 * time.Hour
	moved, err := inbox.Archive(t.Context(), w.db, group, archive.Retention{Window: 30 * day, Kafka: 7 * day, Replay: 7 * day})
	require.NoError(t, err)
	require.Equal(t, 1, moved)

	for expected, by := range map[string]map[string]any{
		"superseded":      {"order_nos": []string{"passed"}, "class": "transient"},
		"held":            {"event_ids": []string{canceled.ID}},
		"altered":         {"order_nos": []string{"changed", "spoiled"}},
		"decided":         {"event_ids": []string{paid["discarded"].ID}},
		"already_applied": {"event_ids": []string{done.ID, old.ID}},
		"conflict":        {"class": "conflict"},
		"unreadable":      {"class": "undecodable"},
		"unknown":         {"event_ids": []string{"nowhere"}},
	} {
		job := w.plan(c, by, 0)
		n := int64(job.Items)
		require.Equal(t, map[string]int64{expected: n}, job.Forecasts)
		if expected != "superseded" && expected != "held" {
			require.Equal(t, map[string]int64{"SETTLED": n}, job.States, "a run has nothing to do: %s", expected)
		}
	}
}
