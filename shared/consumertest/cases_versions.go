package consumertest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/ops"
)

// tooEarly sends version 3 of an order before version 2.
func tooEarly(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	w.start()
	late, early := s.cause("order-1", "ann"), s.later("order-1")
	w.send(early, s.cause("order-2", "ann"))
	w.happens("order-2")
	status := map[Gap]string{GapAllowed: "SUCCESS", GapAwaited: "WAITING", GapHealed: "SUCCESS"}[s.Gap] // there is no owner to ask
	w.eventually("the early version is "+status, func() bool {
		return w.count("SELECT count(*) FROM t_message_consume WHERE event_id = ? AND status = ? AND retry_count = 0", early.ID, status) == 1
	})
	w.send(late)
	w.once("order-1", "order-2")
	if s.Gap == GapAwaited {
		w.inOrder("order-1")
	}
	w.noLetters()
}

// healsFromOwner sends version 3 of an order before version 2, while its owner has version 4.
func healsFromOwner(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	answers := w.owner(4)
	p, opsAddr := w.launch(w.env)
	p.WaitReady(opsAddr, w.s.Within)
	early := s.later("order-1")
	w.send(early)
	w.eventually("the process is not ready while the owner does not answer", func() bool {
		code, why := w.ready(opsAddr)
		return code == http.StatusServiceUnavailable && strings.Contains(why, event.Topic+"/0")
	})
	if n := w.count("SELECT count(*) FROM t_message_consume"); n != 0 {
		w.Fatalf("the owner's silence is counted against the event")
	}
	if v := w.count(s.Projection, "order-1"); v != 0 {
		w.Fatalf("version %d is applied, and nobody has asked what is missing", v)
	}
	answers.Store(true)
	w.eventually("the early version is superseded by what the owner has", func() bool {
		return w.count("SELECT count(*) FROM t_message_consume WHERE event_id = ? AND outcome = 'superseded' AND retry_count = 0", early.ID) == 1
	})
	w.send(s.cause("order-1", "ann"))
	w.once("order-1")
	if v := w.count(s.Projection, "order-1"); v != 4 {
		w.Fatalf("version %d stands where the owner has version 4", v)
	}
	w.noLetters()
}

// owner has every order, cancelled and at this version, and does not answer before it is told to.
func (w *world) owner(version int64) *atomic.Bool {
	w.Helper()
	var answers atomic.Bool
	routes := http.NewServeMux()
	routes.HandleFunc("GET /ops/orders/{no}", func(rw http.ResponseWriter, r *http.Request) {
		if !answers.Load() {
			ops.Problem(rw, http.StatusServiceUnavailable, "unavailable", "the test does not answer yet")
			return
		}
		o := Order(r.PathValue("no"), "ann")
		o.Status, o.PreviousStatus, o.Version = event.StatusCanceled, event.StatusPaid, version
		ops.WriteJSON(rw, http.StatusOK, o)
	})
	server := httptest.NewServer(routes)
	w.Cleanup(server.Close)
	w.env["PAYMENT_OPS_URL"] = server.URL
	return &answers
}

// inOrder waits until both versions of the order are done, the older one first.
func (w *world) inOrder(orderNo string) {
	w.Helper()
	w.eventually("both versions are done, in order", func() bool {
		return w.count(`SELECT count(*) FROM t_message_consume p JOIN t_message_consume c USING (aggregate_id)
			WHERE aggregate_id = ? AND p.aggregate_version = 2 AND c.aggregate_version = 3
			  AND p.status = 'SUCCESS' AND c.status = 'SUCCESS' AND p.updated_at <= c.updated_at`, orderNo) == 1
	})
}

func olderVersion(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	w.start()
	w.send(s.later("order-1"), s.cause("order-1", "ann"), s.cause("order-2", "ann")) // version 3, then 2
	w.eventually("the next order is there", func() bool { return w.count(s.Projection, "order-2") == 2 })
	w.rests()
	if v := w.count(s.Projection, "order-1"); v != 3 {
		w.Fatalf("version %d stands where version 3 was applied", v)
	}
	if n := w.count("SELECT count(*) FROM t_message_consume WHERE aggregate_id = 'order-1' AND aggregate_version = 2 AND outcome = 'superseded'"); n != 1 {
		w.Fatalf("the older version is not recorded as superseded")
	}
	w.noLetters()
}

// laterProducer is about a rolling deployment: the new producer writes more than this consumer knows.
func laterProducer(t testing.TB, s Service) {
	w := newWorld(t, s, 1)
	w.start()
	e := s.cause("order-1", "ann")
	e.Payload = append([]byte(`{"a_field_of_later": {"with": ["more", null]}, `), e.Payload[1:]...)
	r := Record(e)
	r.Headers = append(r.Headers, event.Header{Key: "x-of-later", Value: []byte{0, 255}}, event.Header{Key: "x-of-later"})
	w.sendRaw(r)
	w.send(s.cause("order-2", "ann"))
	w.once("order-1", "order-2")
	w.noLetters()
}
