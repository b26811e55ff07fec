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
	w.persistent()
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
	w.persistent()
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
	w.inOrder("bad")
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
	next := s.later("bad")
	w.send(next)
	if s.SkipsDead {
		w.eventually("the next version is not held", func() bool {
			return w.count("SELECT count(*) FROM t_message_consume WHERE event_id = ? AND held_by IS NULL", next.ID) == 1
		})
		return
	}
	w.eventually("the next version is held, visibly", func() bool {
		return w.count("SELECT count(*) FROM t_message_consume WHERE event_id = ? AND status = 'WAITING' AND held_by = ?", next.ID, e.ID) == 1
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
	for i, why := range []string{"undecodable", "tombstone", "empty", "unknown_type", "unsupported_version"} {
		if l := letters[i]; !l.holds(sent[i]) || l.ErrorClass != "undecodable" || l.ErrorCode != why || l.ErrorText == "" {
			w.Fatalf("record %d is not kept byte for byte as %s, but as %s: %s", i, why, l.ErrorCode, l.ErrorText)
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
	if l := w.letter(); l.Attempts != 1 || !bytes.Equal(l.Payload, e.Payload) || l.ErrorClass != "bad_data" || l.ErrorText == "" {
		w.Fatalf("parked after %d attempts as %s: %s", l.Attempts, l.ErrorClass, l.ErrorText)
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

func oddShapes(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	w.env["CONSUMER_FAILURES_IN_A_ROW"] = "1000" // odd ones come one by one, and not all in a row
	p := w.start()
	sent := map[string]event.Event{}
	for name, spoil := range shapes {
		e := s.cause("odd: "+name, "ann")
		e.Payload = []byte(spoil(string(e.Payload)))
		sent[name] = e
		w.send(e)
	}
	w.send(s.cause("good", "ann"))
	w.happens("good")
	w.rests()
	for name, e := range sent {
		if n := w.count("SELECT count(*) FROM t_message_consume WHERE event_id = ? AND status IN ('SUCCESS', 'REJECTED', 'DEAD')", e.ID); n != 1 {
			w.Fatalf("%s: the consume log does not say how it ended", name)
		}
		dead := w.count("SELECT count(*) FROM t_message_consume WHERE event_id = ? AND status = 'DEAD'", e.ID)
		if kept := w.count("SELECT count(*) FROM t_dead_letter WHERE event_id = ? AND payload = ? AND error_text <> ''", e.ID, e.Payload); kept != dead {
			w.Fatalf("%s: it is dead and not kept byte for byte, with the reason", name)
		}
	}
	w.must(p.Term(w.s.Within))
}

// shapes make of an order something that no producer of today would write. Which of them can be handled is the
// service's own affair.
var shapes = map[string]func(order string) string{
	"null":                     func(string) string { return `null` },
	"a list":                   func(string) string { return `[]` },
	"a number":                 func(string) string { return `7` },
	"a text":                   func(string) string { return `"order"` },
	"nothing inside":           func(string) string { return `{}` },
	"cut off":                  func(o string) string { return o[:len(o)/2] },
	"something behind":         func(o string) string { return o + "}" },
	"no UTF-8":                 func(o string) string { return strings.Replace(o, "a test", "\xff\xfe", 1) },
	"no user":                  with("user_id", `null`),
	"no title":                 with("title", `null`),
	"no amount":                with("amount", `null`),
	"never paid":               with("paid_at", `null`),
	"never made":               with("created_at", `null`),
	"no trade":                 with("trade_no", `null`),
	"less than nothing":        with("amount", `-1250`),
	"more than a number holds": with("amount", `1e400`),
	"all that a number holds":  with("amount", `9223372036854775807`),
	"a text for a number":      with("amount", `"1250"`),
	"an object for a text":     with("title", `{"a": {"b": []}}`),
	"another version":          with("version", `-1`),
	"a long title":             with("title", `"`+strings.Repeat("long ", 40_000)+`"`),
	"a long user":              with("user_id", `"`+strings.Repeat("long ", 40_000)+`"`),
	"a zero byte":              with("user_id", `"a\u0000b"`),
	"no country's currency":    with("currency", `"\u20ac\u20ac\u20ac"`),
	"a status of no order":     with("status", `"DREAMED_OF"`),
}

// with gives a field of the order another value.
func with(field, value string) func(string) string {
	return func(order string) string {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(order), &fields); err != nil {
			panic(err) // it is an order
		}
		fields[field] = json.RawMessage(value)
		payload, err := json.Marshal(fields)
		if err != nil {
			panic(err) // the values above are JSON
		}
		return string(payload)
	}
}

// letter is what a case looks at of a dead letter.
type letter struct {
	EventID, Topic, ErrorClass, ErrorCode, ErrorText, FirstHash, FirstTopic string

	Offset, FirstOffset         int64
	Attempts                    int
	RecordKey, Payload, Headers []byte
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
