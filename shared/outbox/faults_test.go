package outbox

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

const faultPatience = 90 * time.Second

// behind is the database's URL on the other side of a proxy.
func (s *stage) behind() (through string, link *testkit.Link) {
	s.t.Helper()
	address, err := url.Parse(s.url)
	require.NoError(s.t, err)
	link = testkit.Proxy(s.t, address.Host)
	address.Host = link.Addr()
	return address.String(), link
}

// requireSameCopies: however often an event stands on the topic, it is the same to the byte, and at least once.
func (s *stage) requireSameCopies(ids ...string) (copies map[string]int) {
	s.t.Helper()
	first := map[string]event.Record{}
	copies = map[string]int{}
	for _, r := range testkit.ReadTopic(s.t, s.kafka.Brokers(), event.Topic) {
		id := header(r, "ce_id")
		copies[id]++
		if f, again := first[id]; again {
			require.Equal(s.t, f.Partition, r.Partition)
			require.Equal(s.t, f.Key, r.Key)
			require.Equal(s.t, f.Headers, r.Headers)
			require.Equal(s.t, f.Value, r.Value)
		} else {
			first[id] = r
		}
	}
	for _, id := range ids {
		require.GreaterOrEqual(s.t, copies[id], 1, "%s is called sent and was not", id)
	}
	return copies
}

// The two places in which the relay's write can be held: before it is made, and in its COMMIT.
const (
	beforeWrite = 4711
	inCommit    = 4712
)

// holdWrites makes each write that gives a row the status wait for whoever has the lock of that place.
func (s *stage) holdWrites(status string) {
	s.t.Helper()
	for lock, when := range map[int]string{
		beforeWrite: "create trigger hold_write before update on t_outbox_event",
		inCommit:    "create constraint trigger hold_commit after update on t_outbox_event deferrable initially deferred",
	} {
		name := fmt.Sprintf("hold_%d", lock)
		s.exec(fmt.Sprintf("create function %s() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock_shared(%d); return new; end $$", name, lock))
		s.exec(fmt.Sprintf("%s for each row when (new.status = '%s' and new.status <> old.status) execute function %s()", when, status, name))
	}
}

const heldRelays = `from pg_stat_activity where datname = current_database() and application_name = 'outbox-relay' and wait_event = 'advisory'`

func (s *stage) held() (n int) {
	s.t.Helper()
	require.NoError(s.t, s.sql.QueryRow(s.t.Context(), "select count(*) "+heldRelays).Scan(&n))
	return n
}

// TestRowIsDueOrDoneWhereverTheRelaysWriteBreaksOff: each write of a relay, broken off before it is made and in its COMMIT,
// once by the relay's death and once by the loss of its connection. In the one place the server takes the write back, in the
// other it keeps it and nobody hears of it.
func TestRowIsDueOrDoneWhereverTheRelaysWriteBreaksOff(t *testing.T) {
	t.Parallel()
	for status, c := range map[string]struct {
		write string
		end   string
	}{
		Sending: {"the claim", Sent},
		Sent:    {"marking it as sent", Sent},
		Retry:   {"writing its backoff", Sent},
		Dead:    {"parking it", Dead},
	} {
		for _, death := range []bool{true, false} {
			how := map[bool]string{true: "killed", false: "cut off"}[death]
			t.Run(how+" in "+c.write, func(t *testing.T) {
				t.Parallel()
				s := setup(t)
				through, link := s.behind()
				s.holdWrites(status)
				start := func() *testkit.Process {
					return s.processWith(map[string]string{"DATABASE_URL": through, "LEASE": "4s", "DEADLINE": "1s", "MARGIN": "2s"})
				}
				relay := start()
				for i, place := range []int{beforeWrite, inCommit} {
					lock := s.connect()
					s.must(lock, "select pg_advisory_lock($1)", place)
					e := created(fmt.Sprint("O-", i), 1)
					if status == Dead {
						e.Payload = fmt.Appendf(nil, `{"order_no":"%s","pad":"%01100000d"}`, e.AggregateID, 0)
					}
					mended := func() {}
					if status == Retry {
						mended = s.kafka.FailProduce(event.Topic, -1, kerr.NotLeaderForPartition)
					}
					s.insert(e)
					for {
						testkit.Eventually(t, faultPatience, func() error {
							if s.held() == 0 {
								return fmt.Errorf("no write is under way")
							}
							return nil
						})
						if death {
							relay.Kill()
						} else {
							link.Cut()
						}
						if s.held() > 0 {
							break
						}
						// The relay gave this write up in the same moment, and would try again.
						if death {
							relay = start()
						} else {
							link.Restore()
						}
					}
					if place == beforeWrite {
						// The server would notice that its client is gone when it writes to it next.
						s.exec("select pg_terminate_backend(pid, 60000) " + heldRelays)
					}
					s.must(lock, "select pg_advisory_unlock_all()")
					mended()
					if death {
						relay = start()
					} else {
						link.Restore()
					}
					testkit.Eventually(t, faultPatience, func() error {
						if n := s.count("event_id = $1 and status = $2", e.ID, c.end); n != 1 {
							return fmt.Errorf("%s is not %s yet", e.ID, c.end)
						}
						return nil
					})
					if c.end == Dead {
						require.Equal(t, 1, s.count("event_id = $1 and last_error_code = $2", e.ID, codeTooLarge))
						require.Empty(t, s.requireSameCopies())
					} else {
						s.requireSameCopies(e.ID)
					}
				}
				s.requireTrue()
			})
		}
	}
}

// insert commits an event that Append would refuse for its size.
func (s *stage) insert(e event.Event) {
	s.t.Helper()
	payload := e.Payload
	e.Payload = []byte("{}")
	require.NoError(s.t, postgres.Transaction(context.Background(), s.db, func(tx *gorm.DB) error {
		if err := Append(context.Background(), tx, e); err != nil {
			return err
		}
		return tx.Exec("update t_outbox_event set payload = ? where event_id = ?", string(payload), e.ID).Error
	}))
}

// TestSendSwallowedPastTheLeaseIsSentByTheSuccessorAndTheZombieSaysThatItLostTheRow: relay A's connection to Kafka carries
// nothing, or its answers only, and A stands still until its lease is over.
func TestSendSwallowedPastTheLeaseIsSentByTheSuccessorAndTheZombieSaysThatItLostTheRow(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(*testkit.Link){
		"nothing passes":       (*testkit.Link).Swallow,
		"no answer comes back": func(l *testkit.Link) { l.CutAnswersAfter(0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			link := testkit.KafkaProxy(t, s.kafka.Brokers())
			zombie := s.processWith(map[string]string{"KAFKA_BROKERS": link.Addr(), "LEASE": "4s", "DEADLINE": "2s", "MARGIN": "1s"})
			s.append(created("O-0", 1))
			s.eventually(1, "status = 'SENT'") // A is connected
			disturb(link)
			e := created("O-1", 1)
			s.append(e)
			const mine = "event_id = $1 and status = 'SENDING'"
			for caught := false; !caught; {
				testkit.Eventually(t, faultPatience, func() error {
					if s.count(mine, e.ID) == 0 {
						return fmt.Errorf("not claimed")
					}
					return nil
				})
				zombie.Pause()
				if caught = s.count(mine, e.ID) == 1; !caught {
					zombie.Resume() // it had just settled the row as unknown
				}
			}
			s.run()
			testkit.Eventually(t, faultPatience, func() error {
				if s.count("status = 'SENT'") < 2 {
					return fmt.Errorf("the successor has not sent it")
				}
				return nil
			})
			const whole = "select t::text from t_outbox_event t where event_id = $1"
			var before, after string
			require.NoError(t, s.sql.QueryRow(t.Context(), whole, e.ID).Scan(&before))
			zombie.Resume()
			testkit.Eventually(t, faultPatience, func() error {
				said := zombie.Stderr() // the second, if it was paused before it had read its claim
				if !strings.Contains(said, "its settle changed nothing on them") && !strings.Contains(said, "some of them are in other hands") {
					return fmt.Errorf("the zombie does not report its loss")
				}
				return nil
			})
			require.NoError(t, s.sql.QueryRow(t.Context(), whole, e.ID).Scan(&after))
			require.Equal(t, before, after)
			s.requireSameCopies(e.ID)
			s.requireTrue()
		})
	}
}

// TestAnswerThatIsLostAfterTheSendBringsTheSameEventAgainAndItsEffectOnce: Kafka has stored the event, and the relay cannot know.
func TestAnswerThatIsLostAfterTheSendBringsTheSameEventAgainAndItsEffectOnce(t *testing.T) {
	t.Parallel()
	s := setup(t)
	link := testkit.KafkaProxy(t, s.kafka.Brokers())
	s.processWith(map[string]string{"KAFKA_BROKERS": link.Addr()})
	s.append(created("O-0", 1))
	s.eventually(1, "status = 'SENT'")
	link.CutAnswersAfter(0)
	e := created("O-1", 1)
	s.append(e)
	testkit.Eventually(t, faultPatience, func() error {
		if s.requireSameCopies()[e.ID] == 0 || s.count("event_id = $1 and retry_count > 0", e.ID) == 0 {
			return fmt.Errorf("it is not stored, or its answer is not lost yet")
		}
		return nil
	})
	require.Zero(t, s.count("event_id = $1 and status = 'SENT'", e.ID))
	link.Heal()
	s.eventually(2, "status = 'SENT'")
	require.GreaterOrEqual(t, s.requireSameCopies(e.ID)[e.ID], 2)

	require.NoError(t, postgres.Migrate(t.Context(), s.url, inbox.Migrations))
	effects := 0
	for _, r := range testkit.ReadTopic(t, s.kafka.Brokers(), event.Topic) {
		decoded, err := event.Decode(r)
		require.NoError(t, err)
		if decoded.ID != e.ID {
			continue
		}
		require.NoError(t, postgres.Transaction(t.Context(), s.db, func(tx *gorm.DB) error {
			_, err := inbox.Once(t.Context(), tx, inbox.Delivery{Group: "g", Event: decoded, Record: r}, func(*gorm.DB) (inbox.Outcome, error) {
				effects++
				return inbox.Applied, nil
			})
			return err
		}))
	}
	require.Equal(t, 1, effects)
}

// TestTakeoverLeavesARowAloneThatIsBeingSettled: the lease is over, and its owner is in the middle of marking the row.
func TestTakeoverLeavesARowAloneThatIsBeingSettled(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.append(created("O-1", 1), created("O-2", 1))
	r := s.relay()
	hold := r.c.rule().Begin("x")
	rows, _, err := r.claimAndRead(t.Context(), hold, &lane{destination: event.Topic}, 10)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	s.leasesRunOut()
	var settling pgx.Tx
	settling, err = s.sql.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = settling.Rollback(context.Background()) }() // after the commit it does nothing
	_, err = settling.Exec(t.Context(), settleSent, pgx.NamedArgs{
		"ids": []string{rows[0].eventID}, "partitions": []int32{1}, "offsets": []int64{7}, "token": hold.Token,
	})
	require.NoError(t, err)
	require.NoError(t, r.takeOver(t.Context()), "it waits for nobody")
	require.NoError(t, settling.Commit(t.Context()))
	require.NoError(t, r.takeOver(t.Context()))
	require.Equal(t, 1, s.count("event_id = $1 and status = 'SENT' and broker_offset = 7 and takeover_count = 0 and last_error_code is null", rows[0].eventID))
	require.Equal(t, 1, s.count("event_id = $1 and status = 'RETRY' and takeover_count = 1", rows[1].eventID))
}

// TestRelayWhoseDatabaseFallsSilentGoesOnAsSoonAsItIsHeardAgain: nothing breaks, and nothing arrives. The connections stay dead.
func TestRelayWhoseDatabaseFallsSilentGoesOnAsSoonAsItIsHeardAgain(t *testing.T) {
	t.Parallel()
	s := setup(t)
	through, link := s.behind()
	r := s.relay(func(c *Config) { c.DatabaseURL = through })
	require.Equal(t, 70*time.Second, r.silence, "little more than the minute after which the server ends a statement")
	r.silence = 10 * time.Second
	testkit.Run(t, "relay", r.Run)
	s.append(created("O-0", 1))
	s.eventually(1, "status = 'SENT'")
	link.Swallow()
	s.append(created("O-1", 1))
	testkit.Eventually(t, faultPatience, func() error {
		if len(s.logs.Find("the outbox cannot be read; trying again")) == 0 {
			return fmt.Errorf("it still waits for an answer")
		}
		return nil
	})
	require.Equal(t, 1, s.count("status = 'PENDING'"))
	link.Heal()
	testkit.Eventually(t, faultPatience, func() error {
		if n := s.count("status = 'SENT'"); n < 2 {
			return fmt.Errorf("%d are sent", n)
		}
		return nil
	})
}

// TestRowThatAHandHasMadeHoldsUpNobodyAndItsContentsAreNotLogged: no envelope, no headers worth the name, a payload that is
// no JSON. It goes out as it is, for consumers to put it aside, or it is parked.
func TestRowThatAHandHasMadeHoldsUpNobodyAndItsContentsAreNotLogged(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("bad", 20, 20)
	s.exec(`update t_outbox_event set payload = '{"phone": "+31600000001', headers = 'no header at all' || E'\n\n:\n: x' where event_id like 'bad-%'`)
	s.fill("good", 100, 100)
	s.run()
	testkit.Eventually(t, faultPatience, func() error {
		if n := s.count("status not in ('SENT', 'DEAD')"); n > 0 {
			return fmt.Errorf("%d rows are neither sent nor parked", n)
		}
		return nil
	})
	require.Equal(t, 100, s.count("status = 'SENT' and message_key like 'good-%'"))
	require.Zero(t, s.count("status = 'DEAD' and last_error_code is null"))
	require.NotContains(t, s.logs.Text(), "+31600000001")
	published := map[string]bool{}
	for _, r := range testkit.ReadTopic(t, s.kafka.Brokers(), event.Topic) {
		if strings.HasPrefix(string(r.Key), "bad-") {
			published[string(r.Key)] = true
			require.Equal(t, `{"phone": "+31600000001`, string(r.Value))
		}
	}
	require.Len(t, published, s.count("status = 'SENT' and message_key like 'bad-%'"))
}
