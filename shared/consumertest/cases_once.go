package consumertest

import (
	"bytes"
	"strings"
	"testing"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/testkit"
)

func comesTwice(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	w.start()
	e := s.cause("order-1", "ann")
	w.send(e, e)
	testkit.Produce(w, w.broker.Brokers(), event.RedeliveryTopic(s.Group), Record(e))
	w.once("order-1")
	w.noLetters()
}

func twoAtOnce(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	p := w.start()
	g := w.shutsGate()
	e := s.cause("order-1", "ann")
	w.send(e)
	g.arrives()
	testkit.Produce(w, w.broker.Brokers(), event.RedeliveryTopic(s.Group), Record(e)) // another partition, at the same time
	w.eventually("both transactions are open", func() bool {
		return w.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 2
	})
	g.open()
	w.once("order-1")
	w.noLetters()
	if n := w.count("SELECT count(*) FROM t_message_consume WHERE retry_count > 0"); n != 0 {
		w.Fatalf("a copy was counted as a failure")
	}
	if strings.Contains(p.Stderr(), "25P02") {
		w.Fatalf("a duplicate broke its transaction (25P02)")
	}
}

func conflict(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	w.start()
	first := s.cause("order-1", "ann")
	other := Order("order-1", "eve")
	other.Amount = 99900
	second := s.causeOf(other)
	if first.ID != second.ID || bytes.Equal(first.Payload, second.Payload) {
		w.Fatalf("the case is wrong: the two must share an id and nothing else")
	}
	w.send(first, second, s.cause("order-2", "ann"))
	w.once("order-1", "order-2")
	l := w.letter()
	switch {
	case l.ErrorClass != "conflict" || l.EventID != first.ID || !bytes.Equal(l.Payload, second.Payload):
		w.Fatalf("the second body is not kept as a conflict: class %q", l.ErrorClass)
	case l.FirstHash != first.Hash() || l.FirstTopic != event.Topic || l.FirstOffset != 0:
		w.Fatalf("the letter does not say which body came first and where it stands")
	}
	if n := w.count("SELECT count(*) FROM t_message_consume WHERE event_id = ? AND request_hash = ? AND status = 'SUCCESS'", first.ID, first.Hash()); n != 1 {
		w.Fatalf("the first row was touched")
	}
}

func togetherOrNotAtAll(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	w.start()
	w.breaks("order-1", "fail with the log")
	w.send(s.cause("order-1", "ann"), s.cause("order-2", "ann"))
	w.hasFailed()
	if n := w.effects("order-1"); n != 0 {
		w.Fatalf("the log could not be written and %d effects are there", n)
	}
	w.heals()
	w.once("order-1", "order-2")
	w.noLetters()
}

func historyAgain(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	p := w.start()
	all := s.causes(orders(20))
	w.send(all...)
	w.once(orders(20)...)
	rows := w.count("SELECT count(*) FROM t_message_consume")
	w.must(p.Term(w.s.Within))
	w.start()
	w.send(all...)
	w.send(s.cause("the-last", "ann"))
	w.once(append(orders(20), "the-last")...)
	w.noLetters()
	if n := w.count("SELECT count(*) FROM t_message_consume"); n != rows+1 {
		w.Fatalf("the consume log has %d rows instead of %d", n, rows+1)
	}
}

func firstStart(t testing.TB, s Service) {
	w := newWorld(t, s, 4)
	w.send(s.causes(orders(20))...)
	p := w.start()
	w.once(orders(20)...)
	rows := w.count("SELECT count(*) FROM t_message_consume")
	w.must(p.Term(w.s.Within))
	testkit.ForgetGroup(w, w.broker.Brokers(), s.Group)
	w.start()
	w.send(s.cause("the-last", "ann"))
	w.once(append(orders(20), "the-last")...)
	w.noLetters()
	if n := w.count("SELECT count(*) FROM t_message_consume"); n != rows+1 {
		w.Fatalf("the consume log has %d rows instead of %d", n, rows+1)
	}
}
