package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
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

func TestAMessageThatNeverSucceedsIsTriedAsOftenAsAllowedAndItsNeighboursPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	var runs atomic.Int64
	w.run(consumer.InTransaction(func(_ context.Context, tx *gorm.DB, e event.Event) error {
		if e.AggregateID == "bad" {
			runs.Add(1)
			return errors.New("never")
		}
		return effect(tx, e)
	}), nil)
	w.send(paid("bad"))
	for i := range 50 {
		w.send(paid(fmt.Sprint("o-", i)))
	}
	w.eventually("the neighbours are done", func() bool { return w.rows("SUCCESS") == 50 })
	w.eventually("it is dead", func() bool { return w.rows("DEAD") == 1 })
	require.EqualValues(t, 4, runs.Load())
	require.EqualValues(t, 1, w.count(`SELECT count(*) FROM t_dead_letter
		WHERE attempts = 4 AND error_class = 'transient' AND error_text = 'never' AND topic = ? AND partition = 0 AND "offset" = 0`, event.Topic))
}

func TestASerializationFailureThatNeverEndsIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	var runs atomic.Int64
	require.NoError(t, w.db.Exec(`CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$;
		CREATE CONSTRAINT TRIGGER f AFTER INSERT ON t_effect DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION f()`).Error)
	w.run(consumer.InTransaction(func(_ context.Context, tx *gorm.DB, e event.Event) error {
		runs.Add(1)
		return effect(tx, e)
	}), func(c *consumer.Config) { c.Attempts = 2 })
	w.send(paid("o-1"))
	w.eventually("it is dead", func() bool { return w.rows("DEAD") == 1 })
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_dead_letter WHERE attempts = 2 AND error_code = '40001'"))
	require.EqualValues(t, 2*5, runs.Load(), "five times in each attempt")
}

func TestAHandlerThatPanicsAtItsDeadlineHasFailedOnceEachTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.run(consumer.InTransaction(func(ctx context.Context, tx *gorm.DB, e event.Event) error {
		if e.AggregateID == "bad" {
			<-ctx.Done()
			panic("too late")
		}
		return effect(tx, e)
	}), func(c *consumer.Config) { c.HandlerTimeout, c.Attempts = 4*time.Second, 2 })
	w.send(paid("bad"), paid("o-1"))
	w.eventually("the neighbour is done", func() bool { return w.rows("SUCCESS") == 1 })
	w.eventually("it is dead", func() bool { return w.rows("DEAD") == 1 })
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_dead_letter WHERE attempts = 2 AND error_class = 'panic'"))
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_effect"))
	w.ready()
}

func TestWhileAnAttemptCannotBeRecordedItsMessageIsNeitherAckedNorCounted(t *testing.T) {
	t.Parallel()
	for how, c := range map[string]struct {
		answer   error // nil: none in time
		timeout  time.Duration
		attempts int
	}{
		"bad data, from the partition":          {consumer.BadData(errors.New("never")), time.Minute, 1},
		"a time-out, from the partition":        {nil, time.Second, 1},
		"the last of its attempts, in the lane": {errors.New("never"), time.Minute, 3},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			require.NoError(t, w.db.Exec(`CREATE SEQUENCE refused; CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				PERFORM nextval('refused'); RAISE EXCEPTION 'no'; END $$;
				CREATE TRIGGER f BEFORE INSERT ON t_dead_letter FOR EACH ROW EXECUTE FUNCTION f()`).Error)
			w.run(consumer.InTransaction(func(ctx context.Context, _ *gorm.DB, _ event.Event) error {
				if c.answer == nil {
					<-ctx.Done()
					return ctx.Err()
				}
				return c.answer
			}), func(cfg *consumer.Config) { cfg.HandlerTimeout, cfg.Attempts = c.timeout, c.attempts })
			w.send(paid("o-1"))
			w.eventually("the letter has been refused again and again", func() bool {
				return w.count("SELECT last_value FROM refused") > 3
			})
			require.Zero(t, w.rows("DEAD"))
			if c.attempts == 1 {
				require.LessOrEqual(t, testkit.CommittedOffset(t, w.broker.Brokers(), group, event.Topic, 0), int64(0))
				require.Zero(t, w.count("SELECT count(*) FROM t_message_consume"))
			}
			require.NoError(t, w.db.Exec("DROP TRIGGER f ON t_dead_letter").Error)
			w.eventually("it is dead", func() bool { return w.rows("DEAD") == 1 })
			require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_dead_letter WHERE attempts = ?", c.attempts))
			require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_dead_letter"))
			require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_message_consume WHERE retry_count = ?", c.attempts))
			w.ready()
		})
	}
}

func TestAConnectionCutInsideTheTransactionLeavesNothingAndCountsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	open := w.gate("TRIGGER gate BEFORE INSERT ON t_effect FOR EACH ROW")
	link, db := w.proxied()
	w.run(consumer.InTransaction(writesAnEffect), func(c *consumer.Config) { c.DB = db })
	w.send(paid("o-1"))
	w.arrives()
	connections := func() int64 {
		return w.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'consumer'")
	}
	require.Positive(t, connections())
	link.Cut()
	open()
	w.eventually("the server has seen that nobody is there", func() bool { return connections() == 0 })
	require.Zero(t, w.count("SELECT count(*) FROM t_effect"))
	require.Zero(t, w.count("SELECT count(*) FROM t_message_consume"))
	link.Restore()
	w.eventually("it is done", func() bool { return w.rows("SUCCESS") == 1 })
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_effect"))
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_message_consume WHERE retry_count = 0"))
}

func TestALetterWhoseRecordComesAgainIsStillOneLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	h := consumer.InTransaction(func(_ context.Context, tx *gorm.DB, e event.Event) error {
		if e.AggregateID == "bad" {
			return consumer.BadData(errors.New("never"))
		}
		return effect(tx, e)
	})
	first := w.run(h, nil)
	testkit.Produce(t, w.broker.Brokers(), event.Topic, event.Record{Key: []byte("bad"), Value: []byte("garbage")})
	w.send(paid("bad"))
	w.eventually("both are letters", func() bool { return w.count("SELECT count(*) FROM t_dead_letter") == 2 })
	require.NoError(t, first.Stop())
	// As after a death between the letter's commit and the offset's.
	client, err := kgo.NewClient(kgo.SeedBrokers(w.broker.Brokers()))
	require.NoError(t, err)
	defer client.Close()
	start := kadm.Offsets{}
	start.AddOffset(event.Topic, 0, 0, -1)
	_, err = kadm.NewClient(client).CommitOffsets(t.Context(), group, start)
	require.NoError(t, err)
	w.run(h, nil)
	w.send(paid("o-1"))
	w.eventually("what is behind them is done", func() bool { return w.rows("SUCCESS") == 1 })
	require.EqualValues(t, 2, w.count("SELECT count(*) FROM t_dead_letter WHERE state = 'OPEN' AND attempts <= 1"))
	require.EqualValues(t, 2, w.count("SELECT count(*) FROM t_dead_letter"))
}

func TestWhatWasFetchedByAProcessThatCouldNotBeginComesAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	link, url := w.behind()
	opsAddr := testkit.FreeAddr(t)
	p := w.launch("each", "10", url, opsAddr)
	p.WaitReady(opsAddr, within)
	link.Cut()
	w.send(paid("o-1"))
	w.eventually("it is in hand", func() bool { return strings.Contains(p.Stderr(), "partition paused") })
	p.Kill()
	w.start("each", "10")
	w.eventually("it is done", func() bool { return w.rows("SUCCESS") == 1 })
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_effect"))
	require.EqualValues(t, 1, w.count("SELECT count(*) FROM t_message_consume WHERE retry_count = 0"))
}
