package consumertest

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"example.com/paycast/shared/event"
)

func failsForAWhile(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	w.patient()
	w.start()
	w.breaks("bad", "fail")
	w.send(s.cause("bad", "ann"))
	w.send(s.causes(orders(20))...)
	w.happens(orders(20)...)
	if n := w.effects("bad"); n != 0 {
		w.Fatalf("the failed message has %d effects", n)
	}
	w.heals()
	w.once(append(orders(20), "bad")...)
	w.noLetters()
}

func laterVersionsWait(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	w.patient()
	w.start()
	w.breaks("bad", "fail")
	cancel := s.later("bad")
	w.send(s.cause("bad", "ann"), cancel, s.cause("good", "ann"))
	w.happens("good")
	w.eventually("the cancellation waits behind its payment", func() bool {
		return w.count("SELECT count(*) FROM t_message_consume WHERE event_id = ? AND status = 'WAITING' AND held_by = ?",
			cancel.ID, s.cause("bad", "ann").ID) == 1
	})
	w.heals()
	w.once("bad", "good")
	w.eventually("both are done, in order", func() bool {
		return w.count(`SELECT count(*) FROM t_message_consume p JOIN t_message_consume c USING (aggregate_id)
			WHERE aggregate_id = 'bad' AND p.aggregate_version = 2 AND c.aggregate_version = 3
			  AND p.status = 'SUCCESS' AND c.status = 'SUCCESS' AND p.updated_at <= c.updated_at`) == 1
	})
	w.noLetters()
}

func neverSucceeds(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	p := w.start()
	w.breaks("bad", "fail")
	const private = "ann-who-wants-no-fame"
	e := s.cause("bad", private)
	w.send(e)
	w.send(s.causes(orders(5))...)
	w.happens(orders(5)...)
	w.eventually("the message is parked", func() bool { return w.letters() > 0 })
	l := w.letter()
	switch {
	case l.EventID != e.ID || !bytes.Equal(l.Payload, e.Payload) || string(l.RecordKey) != "bad":
		w.Fatalf("the parked message is not the one that was sent")
	case l.Attempts != 5:
		w.Fatalf("parked after %d attempts instead of 5", l.Attempts)
	case l.Topic != event.Topic || l.Offset != 0:
		w.Fatalf("the letter says %s offset %d", l.Topic, l.Offset)
	}
	if strings.Contains(p.Stderr(), private) {
		w.Fatalf("what the message says stands in the log")
	}
	if n := w.count("SELECT count(*) FROM t_dead_letter WHERE error_text LIKE '%' || ? || '%'", private); n != 0 {
		w.Fatalf("what the message says stands in the letter's error")
	}
	w.send(s.later("bad"))
	w.eventually("the next version is held, visibly", func() bool {
		return w.count("SELECT count(*) FROM t_message_consume WHERE status = 'WAITING' AND held_by = ?", e.ID) == 1
	})
}

func unreadable(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	w.start()
	key := []byte("order-1")
	unknown, newer := s.cause("order-1", "ann"), s.cause("order-1", "ann")
	unknown.Type, unknown.ID = "OrderDreamedOf", "dream-1"
	newer.Version, newer.ID = 99, "newer-1"
	sent := []event.Record{
		{Key: key, Value: []byte("\x00\xff{no json\r\n"), Headers: []event.Header{{Key: "ce_id", Value: []byte("1")}, {Key: "ce_id"}, {Key: "b", Value: []byte{0, 255}}}},
		{Key: key, Headers: s.cause("order-1", "ann").Headers()}, // a tombstone
		{Key: key, Value: []byte{}, Headers: s.cause("order-1", "ann").Headers()},
		Record(unknown),
		Record(newer),
	}
	w.sendRaw(sent...)
	w.send(s.cause("order-2", "ann"))
	w.once("order-2")
	var letters []letter
	w.must(w.db.Raw(`SELECT * FROM t_dead_letter ORDER BY "offset"`).Scan(&letters).Error)
	if len(letters) != len(sent) {
		w.Fatalf("%d of %d are parked", len(letters), len(sent))
	}
	for i, l := range letters {
		if !l.holds(sent[i]) {
			w.Fatalf("record %d is not kept byte for byte", i)
		}
	}
}

func badData(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	w.start()
	e := s.causeOf(s.BadData(Order("bad", "ann")))
	w.send(e, s.cause("good", "ann"))
	w.happens("good")
	w.eventually("it is parked", func() bool { return w.letters() == 1 })
	if l := w.letter(); l.Attempts != 1 || !bytes.Equal(l.Payload, e.Payload) || l.ErrorClass != "bad_data" {
		w.Fatalf("parked after %d attempts as %s", l.Attempts, l.ErrorClass)
	}
}

func panics(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	p := w.start()
	e := s.causeOf(s.Panics(Order("bad", "ann")))
	w.send(e)
	w.send(s.causes(orders(5))...)
	w.happens(orders(5)...)
	w.eventually("it is parked", func() bool { return w.letters() == 1 })
	if l := w.letter(); l.Attempts != 5 || !bytes.Equal(l.Payload, e.Payload) || l.ErrorClass != "panic" {
		w.Fatalf("parked after %d attempts as %s", l.Attempts, l.ErrorClass)
	}
	w.must(p.Term(w.s.Within))
}

// letter is what a case looks at of a dead letter.
type letter struct {
	EventID, Topic, ErrorClass, FirstHash, FirstTopic string
	Offset, FirstOffset                               int64
	Attempts                                          int
	RecordKey, Payload, Headers                       []byte
}

// letter is the only one; anything else is a failure.
func (w *world) letter() letter {
	w.Helper()
	var letters []letter
	w.must(w.db.Raw("SELECT * FROM t_dead_letter").Scan(&letters).Error)
	if len(letters) != 1 {
		w.Fatalf("%d messages are parked instead of 1", len(letters))
	}
	return letters[0]
}

// holds reports whether the letter has the record exactly, nil values and repeated headers included.
func (l letter) holds(r event.Record) bool {
	var headers []struct{ Key, Value []byte }
	if json.Unmarshal(l.Headers, &headers) != nil || len(headers) != len(r.Headers) {
		return false
	}
	same := func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
	for i, h := range r.Headers {
		if string(headers[i].Key) != h.Key || !same(headers[i].Value, h.Value) {
			return false
		}
	}
	return same(l.RecordKey, r.Key) && same(l.Payload, r.Value)
}
