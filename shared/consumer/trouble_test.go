package consumer_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/testkit"
)

func writesAnEffect(_ context.Context, tx *gorm.DB, e event.Event) error { return effect(tx, e) }

// notReady waits until /readyz says no and why.
func (w *world) notReady(why string) {
	w.t.Helper()
	w.eventually("/readyz says: "+why, func() bool {
		status, body := w.ops(http.MethodGet, "/readyz", "")
		return status == http.StatusServiceUnavailable && strings.Contains(body, why)
	})
}

func (w *world) ready() {
	w.t.Helper()
	w.eventually("/readyz is 200", func() bool { status, _ := w.ops(http.MethodGet, "/readyz", ""); return status == http.StatusOK })
}

func TestWhileADeadLetterCannotBeWrittenItsRecordIsNotAcked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	require.NoError(t, w.db.Exec(`CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
		CREATE TRIGGER f BEFORE INSERT ON t_dead_letter FOR EACH ROW EXECUTE FUNCTION f()`).Error)
	w.run(consumer.InTransaction(writesAnEffect), nil)
	testkit.Produce(t, w.broker.Brokers(), event.Topic, event.Record{Key: []byte("k"), Value: []byte("garbage")})
	w.send(paid("o-1"))
	w.notReady("parking a record")
	require.Zero(t, w.count("SELECT count(*) FROM t_effect"), "the next one is behind it")
	require.NoError(t, w.db.Exec("DROP TRIGGER f ON t_dead_letter").Error)
	w.eventually("the next one is done", func() bool { return w.rows("SUCCESS") == 1 })
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_dead_letter"))
	w.ready()
}

func TestAMessageThatEndsTheProcessInEachAttemptIsADeadLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	// What such a process leaves behind: a claim that nobody settles, in the last attempt.
	first := w.run(consumer.InTransaction(func(context.Context, *gorm.DB, event.Event) error {
		return consumer.Transient(fmt.Errorf("no"))
	}), func(c *consumer.Config) { c.Backoff, c.MaxBackoff = time.Hour, time.Hour })
	w.send(paid("o-1"))
	w.eventually("it is in the lane", func() bool { return w.rows("RETRY") == 1 })
	require.NoError(t, first.Stop())
	require.NoError(t, w.db.Exec(`UPDATE t_message_consume SET status = 'PROCESSING', owner_token = 'gone', lease_until = now() - interval '1 second',
		next_retry_at = NULL, retry_count = 4`).Error)
	w.run(consumer.InTransaction(func(context.Context, *gorm.DB, event.Event) error {
		t.Error("it ran again")
		return nil
	}), nil)
	w.eventually("it is dead", func() bool { return w.rows("DEAD") == 1 })
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_dead_letter WHERE error_class = 'crashes_consumer'"))
	_, metrics := w.ops(http.MethodGet, "/metrics", "")
	require.Contains(t, metrics, `consumer_lease_expired_total{group="g"} 1`)
}

func TestAConsumerStartsWithoutKafkaAndGoesOnWhenItComesAndComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.broker.Kill()
	w.run(consumer.InTransaction(writesAnEffect), soonStuck)
	w.notReady("topic " + event.Topic)
	w.broker.Restart()
	w.send(paid("o-1"))
	w.eventually("it is done", func() bool { return w.rows("SUCCESS") == 1 })
	w.ready()
	w.broker.Kill()
	w.broker.Restart()
	w.send(paid("o-2"))
	w.eventually("the next is done as well", func() bool { return w.rows("SUCCESS") == 2 })
	require.EqualValues(t, 2, w.count("SELECT count(*) FROM t_effect"))
	w.broker.Kill()
	w.notReady("kafka has not told")
	w.broker.Restart()
	w.ready()
}

// soonStuck is longer than it takes to look at the offsets twice, by a little.
func soonStuck(c *consumer.Config) { c.Stuck = 6 * time.Second }

func TestAnOffsetThatTheTopicDoesNotHaveIsLoud(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	client, err := kgo.NewClient(kgo.SeedBrokers(w.broker.Brokers()))
	require.NoError(t, err)
	defer client.Close()
	offsets := kadm.Offsets{}
	offsets.AddOffset(event.Topic, 0, 1000, -1)
	_, err = kadm.NewClient(client).CommitOffsets(t.Context(), group, offsets)
	require.NoError(t, err)
	w.run(consumer.InTransaction(writesAnEffect), nil)
	w.send(paid("o-1"))
	w.notReady("has no offset 1000")
	require.Zero(t, w.rows("SUCCESS"), "and no jump to another offset")
}

func TestANewGroupReadsWhatWasPublishedBeforeItsFirstStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	for i := range 20 {
		w.send(paid(fmt.Sprint("order-", i)))
	}
	w.run(consumer.InTransaction(writesAnEffect), nil)
	w.eventually("all are done", func() bool { return w.rows("SUCCESS") == 20 })
}

func TestLagAndAgeComeFromTheGroupsOffsets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.send(paid("o-1"), paid("o-2"), paid("o-3"))
	w.run(consumer.Outside(func(context.Context, event.Event) error {
		return consumer.Down(fmt.Errorf("for the whole test"))
	}), soonStuck)
	shown := func() bool {
		_, metrics := w.ops(http.MethodGet, "/metrics", "")
		return strings.Contains(metrics, `consumer_lag_messages{group="g",partition="0"} 3`) &&
			!strings.Contains(metrics, "consumer_oldest_message_age_seconds{group=\"g\"} 0\n")
	}
	w.eventually("the metrics show three messages, their age and the pause", func() bool {
		_, metrics := w.ops(http.MethodGet, "/metrics", "")
		return shown() && strings.Contains(metrics, `consumer_paused_partitions{group="g"} 1`)
	})
	w.broker.Kill()
	w.notReady("kafka has not told")
	require.True(t, shown(), "what is not known any more stands as it was")
}
