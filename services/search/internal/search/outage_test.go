package search_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/services/search/internal/search"
	"example.com/paycast/shared/elastic/elastictest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/testkit"
)

// process runs `search` as a process of its own, to be killed.
func (w *world) process(command string) *testkit.Process {
	w.t.Helper()
	env := maps.Clone(w.env)
	env["HTTP_ADDR"], env["OPS_ADDR"] = testkit.FreeAddr(w.t), testkit.FreeAddr(w.t)
	p := testkit.Exec(w.t, "../..", env, command)
	if command == "serve" {
		p.WaitReady(env["OPS_ADDR"], patience)
	}
	return p
}

func TestKilledBeforeTheIndexHasAnsweredNothingIsRecordedAsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process("serve")
	w.es.SetFault(elastictest.Fault{Kind: elastictest.Silent})
	w.send(orderAt("a", 1))
	testkit.Eventually(t, patience, func() error {
		for _, r := range w.es.Requests() {
			if r.Method == http.MethodPut && r.Path == "/orders/_doc/a" {
				return nil
			}
		}
		return fmt.Errorf("it has not been tried")
	})
	p.Kill()
	assert.Zero(t, w.count("SELECT count(*) FROM t_message_consume WHERE status = 'SUCCESS'"))
	w.es.SetFault(elastictest.Fault{})
	assert.False(t, w.document("a").Found)

	w.process("serve")
	w.eventually("a", 1, "applied")
	assert.EqualValues(t, 1, w.document("a").Version)
}

func TestKilledBetweenTheIndexAndTheLogTheWriteIsRepeatedAndChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process("serve")
	// What records the version waits at this lock, in its transaction with the log.
	hold := w.db.Begin()
	defer hold.Rollback()
	require.NoError(t, hold.Exec("SET LOCAL idle_in_transaction_session_timeout = 0").Error)
	require.NoError(t, hold.Exec("LOCK TABLE t_order_search_projection IN EXCLUSIVE MODE").Error)
	w.send(orderAt("a", 1))
	testkit.Eventually(t, patience, func() error {
		return wanted(1, w.count("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 't_order_search_projection'::regclass"))
	})
	p.Kill()
	before := w.document("a")
	assert.EqualValues(t, 1, before.Version, "the index first")
	assert.Zero(t, w.count("SELECT count(*) FROM t_message_consume WHERE status = 'SUCCESS'"), "and the log after it")
	require.NoError(t, hold.Rollback().Error)

	w.process("serve")
	w.eventually("a", 1, "applied")
	assert.Equal(t, before, w.document("a"))
	statuses := w.writes("a")
	assert.Equal(t, 201, statuses[0])
	assert.Contains(t, statuses[1:], 409, "the same version once more")
	assert.NotContains(t, statuses[1:], 200)
}

func TestAKilledRebuildLeavesTheOldIndexAndTheNextOneEnds(t *testing.T) {
	t.Parallel()
	w, p := withPayment(t, nil)
	for n := range 5 {
		o := orderAt(fmt.Sprintf("o-%d", n), 1)
		p.set(o)
		w.send(o)
		w.eventually(o.OrderNo, 1, "applied")
	}
	w.refresh()
	second, wait := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(wait) })
	defer release()
	pages := 0
	p.onPage(func() {
		if pages++; pages == 2 { // the first page is in the new index
			close(second)
			<-wait
		}
	})
	rebuild := w.process("rebuild")
	testkit.Eventually(t, patience, func() error {
		select {
		case <-second:
			return nil
		default:
			return errors.New("no second page is asked for")
		}
	})
	rebuild.Kill()
	release()
	assert.EqualValues(t, 5, w.search(nil).Total, "readers have a whole index")
	testkit.Eventually(t, patience, func() error {
		err := search.Rebuild(t.Context(), w.env)
		if err != nil && strings.Contains(err.Error(), "another rebuild is running") {
			return err // the server has not noticed the death yet
		}
		require.NoError(t, err)
		return nil
	})
	assert.EqualValues(t, 5, w.search(nil).Total)
	_, old := w.elastic("GET", "/orders-1/_mapping", "")
	assert.Contains(t, string(old), "index_not_found_exception", "the old one is gone")
}

func TestABulkThatAnswersWithFailedItemsLosesNoneOfThem(t *testing.T) {
	t.Parallel()
	w, p := withPayment(t, nil)
	for _, no := range []string{"a", "b", "c"} {
		p.set(orderAt(no, 1))
		w.send(orderAt(no, 1))
		w.eventually(no, 1, "applied")
	}
	w.refresh()
	// One item is refused for good: the new index would lack it, so it does not come.
	w.es.SetFault(elastictest.Fault{Kind: elastictest.Broken, ID: "b"})
	require.ErrorContains(t, search.Rebuild(t.Context(), w.env), "elasticsearch answered 500")
	assert.EqualValues(t, 3, w.search(nil).Total)
	status, _ := w.elastic("GET", "/orders-1/_mapping", "")
	assert.Equal(t, http.StatusOK, status)

	// One item is refused for a moment, and sent again alone.
	w.es.SetFault(elastictest.Fault{Kind: elastictest.Reject, ID: "b", Times: 1})
	before := len(w.es.Requests())
	require.NoError(t, search.Rebuild(t.Context(), w.env))
	assert.EqualValues(t, 3, w.search(nil).Total)
	var writes [][]string
	for _, r := range w.es.Requests()[before:] {
		var ids []string
		for _, write := range r.Writes {
			ids = append(ids, write.ID)
		}
		if ids != nil {
			writes = append(writes, ids)
		}
	}
	assert.Equal(t, [][]string{{"a", "b"}, {"b"}, {"c"}}, writes[:3])
}

func TestAfterAnOutageUnderLoadEachOrderIsAtItsNewestVersionAndNothingWasAckedBefore(t *testing.T) {
	t.Parallel()
	const orders, versions = 250, 4
	w := newWorld(t)
	w.env["CONSUMER_ATTEMPTS"] = "100"   // more than a slow machine can use up until the partitions pause
	w.env["CONSUMER_MAX_BACKOFF"] = "2s" // the stand-in remembers some thousand requests
	w.start()
	w.eventuallyReady()
	batch := func(version int64) {
		all := make([]event.Order, orders)
		for n := range all {
			all[n] = orderAt(fmt.Sprintf("o-%d", n), version)
		}
		w.send(all...)
	}
	batch(1)
	testkit.Eventually(t, patience, func() error {
		if n := w.count("SELECT count(*) FROM t_message_consume WHERE status = 'SUCCESS'"); n < 50 {
			return fmt.Errorf("%d are done", n)
		}
		return nil
	})
	w.es.SetFault(elastictest.Fault{Kind: elastictest.Broken})
	for version := int64(2); version <= versions; version++ {
		batch(version)
	}
	w.eventuallyNotReady("many messages of different orders failed in a row")
	w.requireAckedIsKept()
	w.es.SetFault(elastictest.Fault{})

	testkit.Eventually(t, 3*patience, func() error {
		return wanted(orders*versions, w.count("SELECT count(*) FROM t_message_consume WHERE status = 'SUCCESS'"))
	})
	assert.Zero(t, w.count("SELECT count(*) FROM t_dead_letter"))
	assert.EqualValues(t, orders, w.count("SELECT count(*) FROM t_order_search_projection WHERE last_applied_version = 4"))
	for n := range orders {
		require.EqualValues(t, versions, w.document(fmt.Sprintf("o-%d", n)).Version)
	}
	w.refresh()
	assert.EqualValues(t, orders, w.search(url.Values{"limit": {"1"}}).Total)
	w.requireAckedIsKept()
}

// requireAckedIsKept compares three places: what the group has acked is in the consume log, and what the log calls done
// was written to the index before, in this version or a later one.
func (w *world) requireAckedIsKept() {
	w.t.Helper()
	// Offsets first: whatever is acked by now must be in the log afterwards.
	acked := map[int32]int64{}
	for partition := range int32(event.Partitions) {
		acked[partition] = testkit.CommittedOffset(w.t, w.broker.Brokers(), search.Group, event.Topic, partition)
	}
	var rows []struct {
		AggregateID, Status string
		AggregateVersion    int64
		Partition           int32
		Offset              int64
	}
	require.NoError(w.t, w.db.Raw(`SELECT aggregate_id, aggregate_version, status, partition, "offset" FROM t_message_consume`).Scan(&rows).Error)
	written := map[string]int64{}
	for _, r := range w.es.Requests() {
		for _, write := range r.Writes {
			if write.Status < 300 {
				written[write.ID] = max(written[write.ID], write.Version)
			}
		}
	}
	logged := map[string]bool{}
	for _, row := range rows {
		logged[fmt.Sprint(row.Partition, "/", row.Offset)] = true
		if row.Status == "SUCCESS" {
			require.GreaterOrEqual(w.t, written[row.AggregateID], row.AggregateVersion, "order %s is done and not written", row.AggregateID)
		}
	}
	for _, r := range testkit.ReadTopic(w.t, w.broker.Brokers(), event.Topic) {
		if r.Offset < acked[r.Partition] {
			require.True(w.t, logged[fmt.Sprint(r.Partition, "/", r.Offset)], "offset %d of partition %d is acked and unknown", r.Offset, r.Partition)
		}
	}
}
