package consumer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/testkit"
)

func TestARunningConsumerArchivesByItselfAndStillKnowsWhatItArchived(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.run(consumer.InTransaction(writesAnEffect), func(c *consumer.Config) {
		c.ArchiveAfter, c.ReplayHorizon, c.SweepEvery = 30*24*time.Hour, 24*time.Hour, 50*time.Millisecond
	})
	w.send(paid("old-1"), paid("old-2"), paid("young"))
	w.eventually("all are done", func() bool { return w.rows("SUCCESS") == 3 })
	require.NoError(t, w.db.Exec(`UPDATE t_message_consume SET first_received_at = now() - interval '31 days', updated_at = now() - interval '31 days'
		WHERE aggregate_id LIKE 'old-%'`).Error)
	w.eventually("the old ones are in the archive", func() bool { return w.count("SELECT count(*) FROM t_message_consume_archive") == 2 })
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_message_consume WHERE aggregate_id = 'young'"))
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_message_consume"))

	testkit.Produce(t, w.broker.Brokers(), event.RedeliveryTopic(group), consumertest.Record(paid("old-1")), consumertest.Record(paid("next")))
	w.eventually("what comes behind the copy of an archived one is done", func() bool {
		return w.count("SELECT count(*) FROM t_message_consume WHERE aggregate_id = 'next' AND status = 'SUCCESS'") == 1
	})
	require.EqualValues(t, 4, w.count("SELECT count(*) FROM t_effect"))
}

func TestAProcessKilledWhileItArchivesLeavesEachRowInOnePlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	// More than two batches, and the gate somewhere behind the first.
	require.NoError(t, w.db.Exec(`INSERT INTO t_message_consume (consumer_group, event_id, event_type, aggregate_id, aggregate_version, request_hash,
		status, outcome, topic, partition, "offset", first_received_at, updated_at)
		SELECT 'g', 'e' || i, 'OrderCreated', 'o' || i, 1, 'h', 'SUCCESS', 'applied', 't', 0, i, now() - interval '40 days', now() - interval '40 days'
		FROM generate_series(1, 2500) i`).Error)
	open := w.gate(`TRIGGER gate BEFORE DELETE ON t_message_consume FOR EACH ROW WHEN (OLD."offset" = 1500)`)
	p := w.start("archives", "10")
	w.arrives()
	w.killed(p)
	there, archived := w.count("SELECT count(*) FROM t_message_consume"), w.count("SELECT count(*) FROM t_message_consume_archive")
	require.EqualValues(t, 2500, there+archived)
	require.Positive(t, there)
	require.Zero(t, w.count("SELECT count(*) FROM t_message_consume JOIN t_message_consume_archive USING (consumer_group, event_id)"))
	open()
	w.start("archives", "10")
	w.eventually("all are in the archive", func() bool { return w.count("SELECT count(*) FROM t_message_consume_archive") == 2500 })
	require.Zero(t, w.count("SELECT count(*) FROM t_message_consume"))
}
