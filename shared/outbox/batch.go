package outbox

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/lease"
	"example.com/paycast/shared/postgres"
)

// settleEvery is how long an answer waits for others, to be written together with them. A slow row does not keep its
// neighbours from being settled.
const settleEvery = 20 * time.Millisecond

// batch is one claim in flight.
type batch struct {
	r       *Relay
	lane    lane
	hold    lease.Hold
	results chan outcome
	// halted: nothing more of this batch may be begun, because its rows are no longer ours, its destination refuses or
	// no broker answers.
	halted atomic.Bool
}

// chain is the rows of one key, to be sent one after the other.
type chain struct {
	b    *batch
	rows []row
}

// run reads what was claimed, sends it over the workers and settles the answers as they come. It returns when all are settled.
func (b *batch) run(ctx context.Context, got taken, work chan<- chain) {
	reading, done := b.r.claiming(ctx)
	rows, err := b.r.readClaim(reading, b.hold, b.lane, got)
	done()
	if err != nil {
		b.r.c.Log.Log(ctx, postgres.Severity(err), "claimed outbox rows have to wait for the end of their lease",
			"destination", b.lane.destination, "error", err)
		return
	}
	ctx = context.WithoutCancel(ctx) // what was sent has to be settled, also after the signal to stop
	if b.lane.alone {
		defer time.AfterFunc(suspectLives, func() { b.r.clearOfSuspicion(ctx, b.hold.Token) }).Stop()
	}
	go func() {
		for _, rows := range chains(rows) {
			work <- chain{b, rows} // workers live longer than batches
		}
	}()
	var answers []outcome
	var flush <-chan time.Time
	whole := true // all that was to be settled so far has been
	for left := len(rows); left > 0; {
		select {
		case o := <-b.results:
			answers = append(answers, o)
			left--
			if flush == nil {
				flush = time.After(settleEvery)
			}
		case <-flush:
			whole = b.settle(ctx, answers, false) && whole
			answers, flush = nil, nil
		}
	}
	b.settle(ctx, answers, whole)
}

// send delivers one row after the other and stops at the first that is not accepted: a later event must not pass it.
func (c chain) send(ctx context.Context, out chan<- *message.Message) {
	for i, row := range c.rows {
		if ctx.Err() != nil || c.b.halted.Load() || !c.b.hold.MayBegin() {
			c.giveBack(i)
			return
		}
		a := c.b.r.deliver(ctx, out, row)
		c.b.r.note(ctx, c.b, row, a)
		c.b.results <- outcome{row, a}
		if a.result != resultAccepted {
			c.giveBack(i + 1)
			return
		}
	}
}

func (c chain) giveBack(from int) {
	for _, row := range c.rows[from:] {
		c.b.results <- outcome{row, answer{result: resultNotSent}}
	}
}

// deliver passes one row through Watermill and brings its answer back.
func (r *Relay) deliver(ctx context.Context, out chan<- *message.Message, row row) (a answer) {
	ctx, headers, end := r.trace(ctx, row, decodeHeaders(row.headers))
	defer func() { end(a) }()
	m := kafka.Message(event.Record{
		Topic: row.destination, Key: []byte(row.key), Value: row.payload, Headers: headers,
	})
	msgCtx, h := withHolder(context.WithoutCancel(ctx)) // a send that was begun is finished
	m.SetContext(msgCtx)
	wrapped, err := wrap(row.destination, m)
	if err != nil {
		return answer{result: resultRejected, code: codeUnencodable}
	}
	out <- wrapped
	select {
	case <-wrapped.Acked():
	case <-wrapped.Nacked():
	}
	return h.answer
}

// note draws the conclusions of one answer that go beyond its row.
func (r *Relay) note(ctx context.Context, b *batch, row row, a answer) {
	r.m.attempt(row.destination, row.eventType, a.result)
	switch {
	case a.result == resultAccepted:
		r.gate.succeed()
		if b.lane.paused {
			r.resume(ctx, row.destination)
		}
	case a.everywhere:
		r.gate.fail()
		if b.halted.CompareAndSwap(false, true) {
			r.c.Log.WarnContext(row.context(ctx), "kafka cannot be reached; outbox rows stay", "event_id", row.eventID, "order_no", row.key,
				"destination", row.destination, "result", a.result, "code", a.code)
		}
	case a.result == resultRefused:
		if b.halted.CompareAndSwap(false, true) {
			r.pauseDestination(ctx, row, a)
		}
	}
}

// settle writes outcomes; last says that then the whole claim is settled. While the database does not answer it tries
// until the lease is over, and gives up: the rows are then taken over and sent again.
func (b *batch) settle(ctx context.Context, done []outcome, last bool) (settled bool) {
	r := b.r
	for failures := 0; ; failures++ {
		try, cancel := context.WithTimeout(ctx, r.c.Margin)
		fenced, err := r.settle(try, b.hold.Token, done, last)
		cancel()
		if err == nil {
			b.settled(ctx, done, fenced)
			return true
		}
		if time.Now().After(b.hold.End()) { // and so nothing more of this batch is begun
			r.c.Log.Error("outbox rows could not be settled before their lease ended; they will be sent again",
				"rows", len(done), "destination", b.lane.destination, "error", err)
			return false
		}
		r.c.Log.Warn("settling outbox rows failed; trying again", "rows", len(done), "error", err)
		pause(ctx, jitter(r.c.RetryBase, r.c.Margin, failures))
	}
}

// settled reports what is now in the table.
func (b *batch) settled(ctx context.Context, done []outcome, fenced int) {
	r := b.r
	defer r.nudge()
	if fenced > 0 {
		b.halted.Store(true) // the rest of this batch is in other hands too
		r.m.fenced.Add(float64(fenced))
		r.c.Log.Warn("outbox rows were taken over while this relay worked on them; its settle changed nothing on them",
			"rows", fenced, "destination", b.lane.destination)
	}
	verbose := r.c.Log.Enabled(ctx, slog.LevelDebug)
	for _, o := range done {
		log := r.c.Log.DebugContext
		switch o.answer.result {
		case resultAccepted:
			r.m.delay.Observe((o.row.age + time.Since(b.hold.Begun())).Seconds())
			if !verbose {
				continue // most rows end here
			}
		case resultUnknown:
			log = r.c.Log.WarnContext
		case resultRejected:
			log = r.c.Log.ErrorContext
		}
		log(o.row.context(ctx), "outbox row settled", "event_id", o.row.eventID, "order_no", o.row.key, "destination", o.row.destination,
			"event_type", o.row.eventType, "result", o.answer.result, "code", o.answer.code)
	}
}
