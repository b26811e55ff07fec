package consumertest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/testkit"
)

func killedInside(t testing.TB, s Service) {
	w := newWorld(t, s, event.Partitions)
	p := w.start()
	g := w.shutsGate()
	w.send(s.cause("order-1", "ann"))
	g.arrives()
	w.send(s.causes(orders(20))...) // on other partitions, most of them
	w.eventually("offsets have been committed meanwhile", func() bool {
		at, err := kafka.CommittedOffsets(w.Context(), w.broker.Brokers(), s.Group, event.Topic)
		w.must(err)
		return slices.Max(slices.Collect(maps.Values(at))) > 0
	})
	p.Kill()
	w.abandoned()
	g.open()
	w.heals()
	if n := w.effects("order-1"); n != 0 {
		w.Fatalf("%d effects of a transaction that was never committed", n)
	}
	w.start()
	w.once(append(orders(20), "order-1")...)
	w.noLetters()
}

func killedAfterCommit(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	p := w.start()
	g := w.shutsGate()
	w.send(s.cause("order-1", "ann"))
	g.arrives()
	w.broker.Pause() // no offset can be committed from here on
	g.open()
	w.happens("order-1")
	p.Kill()
	w.broker.Resume()
	w.heals()
	if at := testkit.CommittedOffset(w, w.broker.Brokers(), s.Group, event.Topic, 0); at > 0 {
		w.Fatalf("offset %d was committed before the effect", at)
	}
	w.start()
	w.send(s.cause("order-2", "ann")) // behind the redelivery of the first
	w.once("order-1", "order-2")
	w.noLetters()
}

// endsItsProcess kills the process each time that the message is in hand, as a message does that ends it from inside.
func endsItsProcess(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	w.env["CONSUMER_ATTEMPTS"] = "4" // three of them in its partition
	g := w.shutsGate()
	e := s.cause("order-1", "ann")
	w.send(e)
	others := orders(5)
	w.send(s.causes(others)...)
	for deaths := 0; ; deaths++ {
		p, _ := w.launch(w.env)
		w.eventually("it is in hand once more, or parked", func() bool { return g.waiting() > 0 || w.letters() > 0 })
		if w.count("SELECT count(*) FROM t_message_consume WHERE event_id = ?", e.ID) > 0 {
			w.happens(others...) // it holds up nobody any more
		}
		if w.letters() > 0 {
			w.must(p.Term(w.s.Within))
			break
		}
		if deaths == mostDeaths {
			w.Fatalf("after %d deaths it is still handled", deaths)
		}
		p.Kill()
		w.abandoned()
		w.eventually("its transaction is over", func() bool { return g.waiting() == 0 })
		// What it has left in the lane is free at once: nobody is there any more.
		w.must(w.db.Exec("UPDATE t_message_consume SET lease_until = now() - interval '1 second' WHERE status = 'PROCESSING'").Error)
	}
	if l := w.letter(); l.ErrorClass != "crashes_consumer" || l.Attempts != 4 || l.EventID != e.ID || !bytes.Equal(l.Payload, e.Payload) {
		w.Fatalf("parked after %d attempts as %s", l.Attempts, l.ErrorClass)
	}
	if n := w.effects("order-1"); n != 0 {
		w.Fatalf("%d effects of a message that never came through", n)
	}
	w.start()
	w.once(others...)
}

// mostDeaths are one for each attempt, and some that nobody counts, as where a living process takes over.
const mostDeaths = 6

func sleptOverItsSession(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	p := w.start()
	g := w.shutsGate()
	e := s.cause("order-1", "ann")
	w.send(e)
	g.arrives()
	p.Pause() // it holds its transaction and soon no partition any more
	w.start()
	w.eventually("another member has the same message in hand", func() bool {
		return w.count("SELECT count(DISTINCT client_port) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") > 1
	})
	p.Resume()
	g.open()
	w.once("order-1")
	w.send(s.later("order-1"), s.cause("order-2", "ann"))
	w.once("order-1", "order-2")
	w.unharmed()
}

func databaseDown(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	link, env := w.behind()
	link.Cut()
	p, opsAddr := w.launch(env)
	w.eventually("the process is up before its database", func() bool {
		code, why := w.ready(opsAddr)
		return code != 0 && !strings.Contains(why, "starting up")
	})
	link.Restore()
	p.WaitReady(opsAddr, w.s.Within) // nobody has started it again
	w.send(s.cause("before", "ann"))
	w.once("before")
	link.Cut()
	w.send(s.causes(orders(10))...)
	w.eventually("the process is not ready and says which partition waits", func() bool {
		code, why := w.ready(opsAddr)
		return code == http.StatusServiceUnavailable && strings.Contains(why, event.Topic+"/0")
	})
	link.Restore()
	w.once(orders(10)...)
	w.noLetters()
	if n := w.count("SELECT count(*) FROM t_message_consume WHERE retry_count > 0"); n != 0 {
		w.Fatalf("the outage was counted against %d messages", n)
	}
	p.WaitReady(opsAddr, w.s.Within)
}

// stoppedUnderLoad stops the process again and again, each time in the middle of messages that are still being sent.
func stoppedUnderLoad(t testing.TB, s Service) {
	w := newWorld(t, s, 4)
	var all []string
	for i := range stops {
		p := w.start()
		names := make([]string, 100)
		for n := range names {
			names[n] = fmt.Sprintf("order-%02d-%03d", i, n)
		}
		all = append(all, names...)
		load := testkit.Run(w, "load", func(context.Context) error {
			w.send(s.causes(names)...)
			return nil
		})
		w.happens(names[:20]...)
		if err := p.Term(w.s.Within); err != nil {
			w.Fatalf("stop %d: %v", i+1, err)
		}
		<-load.Done()
	}
	w.start()
	w.once(all...)
	w.unharmed()
}

func membersComeAndGo(t testing.TB, s Service) {
	w := newWorld(t, s, 4)
	names := orders(300)
	first := w.start()
	w.send(s.causes(names[:100])...)
	second := w.start()
	w.send(s.causes(names[100:200])...)
	w.must(first.Term(w.s.Within))
	w.start()
	w.send(s.causes(names[200:])...)
	w.happens(names[200:230]...)
	second.Kill() // with acks that it has not committed yet
	w.once(names...)
	w.unharmed()
}

// unharmed fails when something was parked or counted as a failure.
func (w *world) unharmed() {
	w.Helper()
	w.noLetters()
	if n := w.count("SELECT count(*) FROM t_message_consume WHERE retry_count > 0 OR status <> 'SUCCESS'"); n != 0 {
		w.Fatalf("stopping was counted against %d messages", n)
	}
}
