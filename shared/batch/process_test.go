package batch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for name := range handlers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			consumertest.Run(t, consumertest.Service{
				Program: "./internal/subject", Args: []string{name}, Group: group, Migrations: migrations,
				Table: "t_effect", Effects: "SELECT count(*) FROM t_effect WHERE order_no = ? AND version = 2",
				BadData: func(o event.Order) event.Order { o.Title = "bad"; return o },
				Panics:  func(o event.Order) event.Order { o.Title = "panic"; return o },
				Within:  within,
			})
		})
	}
}

// start runs the subject as a process.
func (w *world) start(name string) *testkit.Process {
	w.t.Helper()
	env := service.Env{
		"DATABASE_URL":  w.url + "&lock_timeout=0", // who waits at the gate waits for the test
		"KAFKA_BROKERS": w.broker.Brokers(), "OPS_ADDR": testkit.FreeAddr(w.t), "OPS_TOKEN": "batch-test-ops-token",
		"KAFKA_SESSION_TIMEOUT": "3s", "CONSUMER_HANDLER_TIMEOUT": "10m", "CONSUMER_LEASE": "20m",
	}
	p := testkit.Exec(w.t, "./internal/subject", env, name)
	p.WaitReady(env["OPS_ADDR"], within)
	return p
}

// ofOrders are n versions of each of some orders, in turns.
func ofOrders(orders, n int) []event.Event {
	all := make([]event.Event, orders*n)
	for o := range orders {
		for v, e := range versions(fmt.Sprint("O-", o), n) {
			all[v*orders+o] = e
		}
	}
	return all
}

// gate lets the transaction that writes the effect of this event wait, until opened.
func (w *world) gate(e event.Event) (open func()) {
	w.t.Helper()
	require.NoError(w.t, w.db.Exec(fmt.Sprintf(`
		CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN NEW; END $$;
		CREATE TRIGGER gate BEFORE INSERT ON t_effect FOR EACH ROW WHEN (NEW.order_no = '%s' AND NEW.version = %d) EXECUTE FUNCTION gate()`,
		e.AggregateID, e.AggregateVersion)).Error)
	pool, err := w.db.DB()
	require.NoError(w.t, err)
	conn, err := pool.Conn(w.t.Context())
	require.NoError(w.t, err)
	_, err = conn.ExecContext(w.t.Context(), "SELECT pg_advisory_lock(4711)")
	require.NoError(w.t, err)
	return func() {
		_, err := conn.ExecContext(context.WithoutCancel(w.t.Context()), "SELECT pg_advisory_unlock(4711)")
		require.NoError(w.t, err)
		require.NoError(w.t, conn.Close())
	}
}

const atTheGate = ` FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'advisory'`

// arrives waits until a transaction stands before the gate.
func (w *world) arrives() {
	w.t.Helper()
	testkit.Eventually(w.t, within, func() error {
		if w.count("SELECT count(*)"+atTheGate) == 0 {
			return errors.New("no transaction stands before the gate")
		}
		return nil
	})
}

func TestKilledInTheMiddleOfABatchItHasLeftNothingAndEachEffectComesOnce(t *testing.T) {
	t.Parallel()
	for name := range handlers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			w.send(ofOrders(20, 10)...)
			mine, other := w.partition(0), w.partition(1)
			open := w.gate(mine[60])
			p := w.start(name)
			w.arrives()
			// Once a later message of the other partition is committed, so is all that was acked here by now.
			w.send(versions(other[0].AggregateID, 11)[10])
			testkit.Eventually(t, within, func() error {
				if at := w.committed(1); at != int64(len(other)+1) {
					return fmt.Errorf("the other partition is committed at %d of %d", at, len(other)+1)
				}
				return nil
			})
			before := w.effects()
			require.Less(t, w.committed(0), int64(61), "the offset of what is in the transaction")
			p.Kill()
			// The server notices a killed client only when it next talks to it.
			require.NoError(t, w.db.Exec("SELECT pg_terminate_backend(pid)"+atTheGate).Error)
			open()
			require.Equal(t, before, w.effects())
			w.start(name)
			w.requireAllOnce(201)
			w.requireNothingCounted()
		})
	}
}

func TestKilledAfterTheCommitOfABatchAndBeforeItsAckTheEffectsStaySingle(t *testing.T) {
	t.Parallel()
	for name := range handlers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			events := ofOrders(10, 10)
			w.send(events...)
			open := w.gate(events[60])
			p := w.start(name)
			w.arrives()
			before := w.effects()
			w.broker.Pause() // no offset can be committed from here on
			open()
			testkit.Eventually(t, within, func() error {
				if w.effects() == before {
					return errors.New("the batch is not committed")
				}
				return nil
			})
			p.Kill()
			w.broker.Resume()
			require.LessOrEqual(t, w.committed(0), before, "the offset that the next member starts at")
			w.start(name)
			w.requireAllOnce(100)
			w.requireNothingCounted()
		})
	}
}

func TestStoppedAgainAndAgainUnderLoadNothingIsCountedParkedOrDoubled(t *testing.T) {
	t.Parallel()
	for name := range handlers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 4)
			w.send(ofOrders(80, 10)...)
			// Effects take their time, so that each signal finds batches under way.
			require.NoError(t, w.db.Exec(`
				CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.005); RETURN NEW; END $$;
				CREATE TRIGGER slow BEFORE INSERT ON t_effect FOR EACH ROW EXECUTE FUNCTION slow()`).Error)
			for range 4 {
				before := w.effects()
				p := w.start(name)
				testkit.Eventually(t, within, func() error {
					if n := w.effects(); n < min(before+50, 800) {
						return fmt.Errorf("%d effects", n)
					}
					return nil
				})
				require.NoError(t, p.Term(within), "the exit code")
				w.requireNothingCounted()
			}
			w.start(name)
			w.requireAllOnce(800)
			w.requireNothingCounted()
		})
	}
}

// committed is the offset at which the partition's next owner begins.
func (w *world) committed(partition int32) int64 {
	w.t.Helper()
	return testkit.CommittedOffset(w.t, w.broker.Brokers(), group, event.Topic, partition)
}

// partition gives the events of a partition.
func (w *world) partition(p int32) (events []event.Event) {
	w.t.Helper()
	for _, r := range testkit.ReadTopic(w.t, w.broker.Brokers(), event.Topic) {
		if r.Partition == p {
			e, err := event.Decode(r)
			require.NoError(w.t, err)
			events = append(events, e)
		}
	}
	return events
}

// requireNothingCounted says that no message was taken for one that failed.
func (w *world) requireNothingCounted() {
	w.t.Helper()
	require.Zero(w.t, w.count("SELECT count(*) FROM t_message_consume WHERE retry_count > 0 OR status <> 'SUCCESS'"))
	require.Zero(w.t, w.count("SELECT count(*) FROM t_dead_letter"))
}
