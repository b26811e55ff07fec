package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

func TestCommittedEventReachesKafkaByteForByteAndItsPlaceIsKept(t *testing.T) {
	t.Parallel()
	s := setup(t)
	e := created("O-1", 1)
	e.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	s.append(e)
	s.run()
	s.eventually(1, "status = 'SENT'")

	got := testkit.ReadTopic(t, s.kafka.Brokers(), event.Topic)
	require.Len(t, got, 1)
	require.Equal(t, e.Headers(), got[0].Headers)
	require.Equal(t, string(e.Payload), string(got[0].Value))
	decoded, err := event.Decode(got[0])
	require.NoError(t, err)
	require.Equal(t, e, decoded)

	var partition int32
	var offset int64
	require.NoError(t, s.sql.QueryRow(t.Context(), "select broker_partition, broker_offset from t_outbox_event").Scan(&partition, &offset))
	require.Equal(t, got[0].Partition, partition)
	require.Equal(t, got[0].Offset, offset)
	require.NotContains(t, s.logs.Text(), "amount", "payloads are not logged")
}

func TestLargeBacklogLeavesInOrderPerKeyAndOnce(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 3000, 100)
	s.fill("H", 1000, 1)
	s.run(func(c *Config) { c.Batch = 200 })
	s.run(func(c *Config) { c.Batch = 200 })
	s.eventually(4000, "status = 'SENT'")
	s.requireOrdered(4000)
	require.Zero(t, s.count("held_by is not null"))
}

// requireOrdered: n distinct events, and the first copies of each key in version order without a gap.
func (s *stage) requireOrdered(n int) {
	s.t.Helper()
	last, total := map[string]int64{}, 0
	for _, r := range testkit.ReadTopic(s.t, s.kafka.Brokers(), event.Topic) {
		v, err := strconv.ParseInt(header(r, "ce_aggregateversion"), 10, 64)
		require.NoError(s.t, err)
		require.LessOrEqual(s.t, v, last[string(r.Key)]+1, "key %s", r.Key)
		if v > last[string(r.Key)] {
			last[string(r.Key)] = v
			total++
		}
	}
	require.Equal(s.t, n, total)
}

func TestEventCommittedAfterALaterOneIsNotSkipped(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.run()
	slow := s.db.Begin()
	defer slow.Rollback()
	require.NoError(t, Append(t.Context(), slow, created("O-slow", 1)))
	rolledBack := s.db.Begin()
	require.NoError(t, Append(t.Context(), rolledBack, created("O-gone", 1)))
	require.NoError(t, rolledBack.Rollback().Error)
	s.append(created("O-fast", 1))
	s.eventually(1, "status = 'SENT'")
	require.NoError(t, slow.Commit().Error)
	s.eventually(2, "status = 'SENT'")
	require.Len(t, s.published(), 2)
}

func TestRelayKilledBetweenKafkasAnswerAndSentPublishesTheSameEventAgain(t *testing.T) {
	t.Parallel()
	s := setup(t)
	e := created("O-1", 1)
	s.append(e)
	// A trigger makes every settle fail: for the table the relay dies after each answer.
	s.exec(`create function die() returns trigger language plpgsql as $$ begin raise exception 'killed'; end $$`)
	s.exec(`create trigger die before update on t_outbox_event for each row when (new.status = 'SENT') execute function die()`)
	first := s.run()
	testkit.Eventually(t, soon, func() error {
		s.leasesRunOut()
		if n := s.published()[e.ID]; n < 2 {
			return fmt.Errorf("published %d times", n)
		}
		return nil
	})
	require.Zero(t, s.count("status = 'SENT'"))
	s.exec(`drop trigger die on t_outbox_event`)
	require.NoError(t, first.Stop())
	s.run()
	s.eventually(1, "status = 'SENT'")

	records := testkit.ReadTopic(t, s.kafka.Brokers(), event.Topic)
	for _, r := range records {
		require.Equal(t, records[0].Partition, r.Partition)
		require.Equal(t, records[0].Key, r.Key)
		require.Equal(t, records[0].Headers, r.Headers)
		require.Equal(t, records[0].Value, r.Value)
	}
	require.GreaterOrEqual(t, s.count("takeover_count >= 1"), 1)
}

func TestRowOfADeadRelayIsTakenOverAndItsLateSettleChangesNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	e := created("O-1", 1)
	s.append(e)
	zombie := s.relay(func(c *Config) { c.Owner = "zombie" })
	hold := zombie.c.rule().Begin("zombie")
	rows, _, err := zombie.claimAndRead(t.Context(), hold, &lane{destination: event.Topic}, 10)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	s.leasesRunOut()

	reg := prometheus.NewRegistry()
	s.run(func(c *Config) { c.Metrics = reg })
	s.eventually(1, "status = 'SENT'")
	require.Equal(t, 1, s.published()[e.ID], "the dead relay had not sent it")
	var before string
	const whole = "select t::text from t_outbox_event t"
	require.NoError(t, s.sql.QueryRow(t.Context(), whole).Scan(&before))

	for _, late := range []answer{
		{result: resultAccepted, partition: 3, offset: 99}, {result: resultUnknown, code: codeDeadline}, {result: resultRejected, code: "x"}, {result: resultNotSent},
	} {
		fenced, err := zombie.settle(t.Context(), hold.Token, []outcome{{rows[0], late}}, true)
		require.NoError(t, err)
		require.Equal(t, 1, fenced)
	}
	var after string
	require.NoError(t, s.sql.QueryRow(t.Context(), whole).Scan(&after))
	require.Equal(t, before, after)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP outbox_lease_expired_total Rows taken over because their relay did not settle them in time.
# TYPE outbox_lease_expired_total counter
outbox_lease_expired_total 1
`), "outbox_lease_expired_total"))
}

func TestSettleByIDAloneTakesTheRowOutOfItsSuccessorsHands(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.append(created("O-1", 1))
	zombie, successor := s.relay(), s.relay()
	rows, _, err := zombie.claimAndRead(t.Context(), zombie.c.rule().Begin("zombie"), &lane{destination: event.Topic}, 10)
	require.NoError(t, err)
	s.leasesRunOut()
	require.NoError(t, successor.takeOver(t.Context()))
	s.eventually(1, "next_retry_at <= now()")
	hold := successor.c.rule().Begin("successor")
	again, _, err := successor.claimAndRead(t.Context(), hold, &lane{destination: event.Topic}, 10)
	require.NoError(t, err)
	require.Len(t, again, 1)

	// The broken mechanism: the zombie's settle without its fence.
	const fence = "and e.owner_token = @token and e.status = 'SENDING'"
	require.Contains(t, settleRest, fence)
	_, err = zombie.db.Exec(t.Context(), strings.Replace(settleRest, fence, "", 1), pgx.NamedArgs{
		"ids": []string{rows[0].eventID}, "statuses": []string{Retry}, "counted": []int32{1}, "alone": []bool{false},
		"codes": []string{codeDeadline}, "messages": []string{"late"}, "base": time.Millisecond, "cap": time.Millisecond,
	})
	require.NoError(t, err)

	// The damage: Kafka's confirmation to the successor is lost, and the event will be sent a third time.
	fenced, err := successor.settle(t.Context(), hold.Token, []outcome{{again[0], answer{result: resultAccepted}}}, true)
	require.NoError(t, err)
	require.Equal(t, 1, fenced)
	require.Equal(t, 1, s.count("status = 'RETRY'"))
}

func TestKafkaDownLeavesRowsAndTheyGoOutAsSoonAsItIsBack(t *testing.T) {
	t.Parallel()
	for name, connected := range map[string]bool{"down from the start": false, "lost later": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			r := s.relay()
			sent := 0
			if connected {
				testkit.Run(t, "relay", r.Run)
				s.fill("W", 100, 100) // all partitions are in use
				s.eventually(100, "status = 'SENT'")
				sent = 100
			}
			s.kafka.Kill()
			s.fill("A", 300, 300)
			if !connected {
				testkit.Run(t, "relay", r.Run)
			}
			testkit.Eventually(t, soon, func() error {
				if r.gate.failing() < 2*time.Second {
					return fmt.Errorf("the gate is open")
				}
				if n := s.count("status = 'SENDING'"); n > 1 {
					return fmt.Errorf("%d rows are still being tried, not one at a time", n)
				}
				return nil
			})
			require.Zero(t, s.count("status = 'DEAD' or takeover_count > 0"))
			s.kafka.Restart()
			unreachable := r.m.attempts.WithLabelValues(event.Topic, event.OrderCreated, string(resultUnreachable))
			before := testutil.ToFloat64(unreachable)
			s.eventually(300+sent, "status = 'SENT'")
			require.LessOrEqual(t, testutil.ToFloat64(unreachable), before+2, "breakers must not prolong the outage: a try that has begun may fail, the next one connects")
			require.Len(t, s.published(), 300+sent)
		})
	}
}

func TestFailuresOfOneBurstLengthenThePauseOnce(t *testing.T) {
	t.Parallel()
	g := gate{base: time.Hour, cap: time.Hour}
	for range 5 {
		g.fail()
	}
	require.Equal(t, 1, g.failures)
}

func TestClosedGateOpensForOneRowAndNotForOneOfEachDestination(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 2, 2)
	s.exec("update t_outbox_event set destination = event_id")
	r := s.relay()
	r.gate.fail()
	require.Equal(t, 1, s.triedInARound(r))
}

// triedInARound counts the rows that one round hands to workers, who try none of them.
func (s *stage) triedInARound(r *Relay) (tried int) {
	s.t.Helper()
	f := feeder{Relay: r, work: make(chan chain), slots: make(chan struct{}, r.c.Batches)}
	worker := testkit.Run(s.t, "worker", func(context.Context) error {
		for c := range f.work {
			tried += len(c.rows)
			c.giveBack(0)
		}
		return nil
	})
	_, err := f.round(s.t.Context())
	f.drain()
	close(f.work)
	<-worker.Done()
	require.NoError(s.t, err)
	return tried
}

func TestRelayIsReadyAfterAnOutageThoughAnotherHasSentTheRows(t *testing.T) {
	t.Parallel()
	s := setup(t)
	r := s.relay()
	testkit.Run(t, "relay", r.Run)
	s.fill("W", 1, 1)
	s.eventually(1, "status = 'SENT'")
	s.kafka.Kill()
	s.fill("A", 1, 1)
	testkit.Eventually(t, soon, func() error {
		if says := fmt.Sprint(r.Ready(t.Context())); !strings.Contains(says, "kafka cannot be reached") {
			return errors.New("it does not miss Kafka, but says: " + says)
		}
		return nil
	})
	// As another relay leaves it. A claimed row is ours until it is settled, so only one that waits is taken.
	testkit.Eventually(t, soon, func() error {
		if s.exec(`update t_outbox_event set status = 'SENT', sent_at = now(), broker_partition = 0 where status = 'RETRY'`) == 0 {
			return errors.New("the row is just being tried")
		}
		return nil
	})
	require.Positive(t, r.gate.failing(), "Kafka is still away")
	s.kafka.Restart()
	testkit.Eventually(t, soon, func() error { return r.Ready(t.Context()) })
}

func TestAShortOutageIsNoReasonToRestart(t *testing.T) {
	t.Parallel()
	pub, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: "127.0.0.1:1"})
	require.NoError(t, err)
	r, err := NewRelay(Config{DatabaseURL: "postgres://x", Publisher: pub})
	require.NoError(t, err)
	defer r.db.Close()
	r.alive.beat()
	r.gate.fail()
	require.NoError(t, r.Ready(t.Context()))
	r.gate.first = r.gate.first.Add(-time.Minute)
	require.ErrorContains(t, r.Ready(t.Context()), "kafka cannot be reached")
}

func TestRowWithoutADestinationIsParkedAndOthersPass(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("P", 1, 1)
	s.exec("update t_outbox_event set destination = ''")
	s.fill("G", 2, 2)
	s.run()
	s.eventually(1, "status = 'DEAD' and last_error_code = 'unencodable' and destination = ''")
	s.eventually(2, "status = 'SENT'")
}

func TestPoisonRowsAreParkedAndOthersPass(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("P", 50, 50)
	s.exec(`update t_outbox_event set payload = repeat('x', 1100000), created_at = now() - interval '1 hour', next_retry_at = now() - interval '1 hour'`)
	s.fill("G", 100, 100)
	relay := s.run(func(c *Config) { c.Batch = 50 })
	s.eventually(100, "status = 'SENT' and message_key like 'G-%'")
	s.eventually(50, "status = 'DEAD' and last_error_code = 'message_too_large'")
	require.Len(t, s.published(), 100)
	s.requireTrue()
	require.NoError(t, relay.Stop())
	rejected := 0
	for _, line := range s.logs.Find("outbox row settled") {
		if line["result"] == string(resultRejected) {
			rejected++
		}
	}
	require.Equal(t, 50, rejected, "each row is reported once")
}

func TestSmallRowIsNotBlamedForTheSizeOfItsBatch(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 20, 20)
	s.exec("update t_outbox_event set payload = repeat('x', 2000) where message_key = 'A-5'")
	remove := s.kafka.FailProduce(event.Topic, 3, kerr.MessageTooLarge)
	defer remove()
	s.run()
	s.eventually(20, "status = 'SENT'")
	require.Len(t, s.published(), 20)
}

func TestOneDeadRowHoldsItsKeyAndNothingElse(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("B", 10000, 1) // one key; its first row can never go out
	s.exec("update t_outbox_event set payload = repeat('x', 1100000) where aggregate_version = 1")
	s.fill("G", 100, 100)
	s.run(func(c *Config) { c.Batch = 100 })
	s.eventually(100, "status = 'SENT' and message_key like 'G-%'")
	s.eventually(9999, "held_by = 'B-0'")
	require.Zero(t, s.count("status = 'SENT' and message_key like 'B-%'"))
}

func TestRefusedRowInTheMiddleOfItsKeyStopsWhatIsBehindItAndNothingBefore(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 10, 1)
	s.exec("update t_outbox_event set payload = repeat('x', 1100000) where event_id = 'A-4'")
	s.run()
	s.eventually(5, "held_by = 'A-4'")
	require.Equal(t, 1, s.count("event_id = 'A-4' and status = 'DEAD'"))
	require.Equal(t, 4, s.count("status = 'SENT'"))
	require.Equal(t, map[string]int{"A-0": 1, "A-1": 1, "A-2": 1, "A-3": 1}, s.published())
	s.requireTrue()
}

func TestUnknownAnswerIsSentAgainWithTheSameID(t *testing.T) {
	t.Parallel()
	s := setup(t)
	e := created("O-1", 1)
	s.append(e)
	s.kafka.LoseProduceAnswers(10)
	s.run()
	s.eventually(1, "status = 'SENT'")
	require.GreaterOrEqual(t, s.published()[e.ID], 1)
	require.Len(t, s.published(), 1)
}

func TestUnreachableDatabaseEndsNothingAndIsSurvived(t *testing.T) {
	t.Parallel()
	s := setup(t)
	cfg, err := postgres.Config(s.url, "x")
	require.NoError(t, err)
	link := testkit.Proxy(t, fmt.Sprintf("%s:%d", cfg.Host, cfg.Port))
	direct := fmt.Sprintf("%s:%d", cfg.Host, cfg.Port)
	link.Cut()
	r := s.relay(func(c *Config) { c.DatabaseURL = strings.Replace(s.url, direct, link.Addr(), 1) })
	testkit.Run(t, "relay", r.Run)
	require.EqualError(t, r.Ready(t.Context()), "the outbox has not been read yet")
	s.append(created("O-1", 1))
	testkit.Eventually(t, soon, func() error {
		if len(s.logs.Find("the outbox cannot be read; trying again")) == 0 {
			return fmt.Errorf("not tried yet")
		}
		return nil
	})
	link.Restore()
	s.eventually(1, "status = 'SENT'")
}

func TestClaimNeverTakesMoreThanItsBatch(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.exec("analyze t_outbox_event") // of an empty table
	s.exec("alter table t_outbox_event set (autovacuum_enabled = off)")
	s.fill("A", 5000, 5000)
	r := s.relay(func(c *Config) {
		// As the role's own default would be; "options" reaches the server before our parameters.
		c.DatabaseURL += "&enable_hashjoin=off&enable_mergejoin=off"
		if !strings.Contains(s.url, "?") {
			c.DatabaseURL = s.url + "?enable_hashjoin=off&enable_mergejoin=off"
		}
	})
	total := 0
	for {
		rows, _, err := r.claimAndRead(t.Context(), r.c.rule().Begin("x"), &lane{destination: event.Topic}, 10)
		require.NoError(t, err)
		require.LessOrEqual(t, len(rows), 10)
		if total += len(rows); len(rows) == 0 || total > 500 {
			break
		}
	}
	require.Greater(t, total, 500)
}

func TestStoppedRelayGivesBackWhatItHasNotSent(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.kafka.DelayProduce(200 * time.Millisecond) // 500 rows of two keys take the best part of a minute
	s.fill("A", 500, 2)
	relay := s.run()
	s.eventually(500, "status in ('SENDING', 'SENT')")
	require.NoError(t, relay.Stop())
	require.Zero(t, s.count("status = 'SENDING'"))
	sent := s.count("status = 'SENT'")
	require.Less(t, sent, 500)
	require.Equal(t, 500-sent, s.count("status in ('PENDING', 'RETRY') and owner_token is null"))
	require.GreaterOrEqual(t, len(s.published()), sent)
}

func TestWakeUpBeatsThePollAndIsNotNeeded(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.run(func(c *Config) { c.Poll = time.Hour })
	w := NewWaker(s.url, slog.New(s.logs))
	testkit.Run(t, "waker", w.Run)
	s.append(created("O-1", 1))
	testkit.Eventually(t, soon, func() error {
		w.Wake()
		if s.count("status = 'SENT'") == 0 {
			return fmt.Errorf("still waiting")
		}
		return nil
	})

	u := setup(t)
	u.run()
	u.append(created("O-1", 1)) // nobody wakes it
	u.eventually(1, "status = 'SENT'")
}

func TestLeaseTooShortForASendIsRefusedWithTheArithmetic(t *testing.T) {
	t.Parallel()
	pub, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: "127.0.0.1:1"})
	require.NoError(t, err)
	_, err = NewRelay(Config{DatabaseURL: "postgres://x", Publisher: pub, Lease: 6 * time.Second})
	require.ErrorContains(t, err, "lease 6s is too short: deadline 5s + margin 2s = 7s")
	_, err = NewRelay(Config{})
	require.ErrorContains(t, err, "no database URL")
	require.ErrorContains(t, err, "no publisher")
}

func TestMetricsAreWellFormedAndStartAtZero(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m, err := newMetrics(reg)
	require.NoError(t, err)
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, 6*len(event.Types()), testutil.CollectAndCount(m.attempts))
	require.Zero(t, testutil.ToFloat64(m.attempts.WithLabelValues(event.Topic, event.PaymentSucceeded, string(resultUnknown))))
}
