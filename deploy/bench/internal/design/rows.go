package design

import (
	"fmt"
	"strings"
	"time"

	"example.com/paycast/shared/event"
)

// payloadBytes is the size of every payload.
const payloadBytes = 500

// Rows describes a backlog: row i belongs to key i mod Keys, so each key's versions are spread over all of it.
type Rows struct{ N, Keys int }

// Name tells one backlog from another.
func (r Rows) Name() string { return fmt.Sprintf("%d_rows_%d_keys", r.N, r.Keys) }

// begin is the day's: what is as old as Kafka's retention takes another road through a consumer.
var begin = time.Now().UTC().Truncate(day)

const day = 24 * time.Hour

// Event is row i, the same in every design.
func (r Rows) Event(i int) event.Event {
	return Event(fmt.Sprintf("O-%06d", i%r.Keys), int64(i/r.Keys+1), i)
}

// Event is one version of one order.
func Event(order string, version int64, i int) event.Event {
	head := fmt.Sprintf(`{"order_no":%q,"version":%d,"title":"`, order, version)
	return event.Event{
		ID: event.NewID(event.OrderCreated, order, fmt.Sprint(version)), Type: event.OrderCreated, Version: 1, Source: "/payment",
		AggregateType: event.AggregateOrder, AggregateID: order, AggregateVersion: version,
		Time:    begin.Add(time.Duration(i) * time.Microsecond),
		Payload: []byte(head + strings.Repeat("x", payloadBytes-len(head)-2) + `"}`),
	}
}

// Number is the i with which Event was called.
func Number(e event.Event) int { return int(e.Time.Sub(e.Time.Truncate(day)) / time.Microsecond) }

// lines are an event's headers as the tables of ours and of chunks keep them.
func lines(e event.Event) string {
	var b strings.Builder
	for _, h := range e.Headers() {
		b.WriteString(h.Key)
		b.WriteString(": ")
		b.Write(h.Value)
		b.WriteByte('\n')
	}
	return b.String()
}
