package reconcile

import (
	"fmt"

	"example.com/paycast/shared/facts"
)

// The kinds of effects that have rules of their own. Of any other kind an applied event has exactly one.
const (
	credit   = "CREDIT"   // points for a payment
	reversal = "REVERSAL" // and back, when the paid order is cancelled
	paid     = "PAID"     // a command because of a payment
	canceled = "CANCELED" // and another, when the paid order is cancelled
	document = "DOCUMENT" // a copy of the order
)

// counterpart is what the cancellation of a paid order must have where its payment had the first.
var counterpart = map[string]string{credit: reversal, paid: canceled}

// known effects belong to one type of event each.
var known = map[string]bool{credit: true, reversal: true, paid: true, canceled: true}

// promiseOf finds out what a group does, from any effect that it shows: credit, paid, document, or "" for something
// else. A group that credits payments must credit each of them, so one that it merely ignored is a finding.
func promiseOf(all []facts.Fact) string {
	for _, f := range all {
		if f.Effect == nil {
			continue
		}
		switch f.Effect.Kind {
		case credit, reversal:
			return credit
		case paid, canceled:
			return paid
		case document:
			return document
		}
	}
	return ""
}

// effects checks what the events of one order did in one group.
func (c *comparison) effects(g Group, o facts.Order, rows []row) {
	if g.Promise == document {
		c.document(g, o, rows)
		return
	}
	payment := paymentOf(rows)
	for _, r := range rows {
		if kind, detail := c.effectFault(g, o, r, payment); kind != "" {
			c.find(kind, g.Name, o.OrderNo, r.event.EventID, "%s v%d: %s", r.event.EventType, r.event.Version, detail)
		}
	}
	if g.Promise == credit {
		c.addPoints(g, o, rows)
	}
}

// paymentOf is the row of the order's payment, or nil.
func paymentOf(rows []row) *row {
	for i := range rows {
		if rows[i].event.EventType == paymentSucceeded {
			return &rows[i]
		}
	}
	return nil
}

// effectFault returns the first thing that is wrong with the effect of one event.
func (c *comparison) effectFault(g Group, o facts.Order, r row, payment *row) (kind, detail string) {
	if r.fact == nil {
		return "", ""
	}
	e := r.fact.Effect
	there := e != nil && e.Copies > 0
	duty := ""
	switch back := counterpart[g.Promise]; {
	case r.event.EventType == paymentSucceeded:
		duty = g.Promise
	case r.event.EventType != orderCanceled || payment == nil || payment.bucket == rejected:
		// there is nothing to take back
	case payment.bucket == applied || there && e.Kind == back:
		// The second: what is wrong with the payment is reported there, and not once more here.
		duty = back
	}
	finished := r.bucket == applied || r.bucket == ignored || r.bucket == superseded
	switch {
	case finished && duty != "" && (!there || e.Kind != duty):
		return EffectMissing, fmt.Sprintf("the log says %s, and there is no %s", r.bucket, duty)
	case r.bucket == applied && !there:
		return EffectMissing, "the log says applied, and there is no effect"
	case !there:
		return "", ""
	case r.bucket != applied:
		return EffectUnexpected, fmt.Sprintf("%s %s is there although the event is %s", e.Kind, e.Ref, r.bucket)
	case e.Copies > 1:
		return EffectRepeated, fmt.Sprintf("%s is there %d times", e.Kind, e.Copies)
	case known[e.Kind] && e.Kind != duty:
		return EffectUnexpected, fmt.Sprintf("%s %s does not belong to this event", e.Kind, e.Ref)
	}
	switch {
	case e.UserID != "" && e.UserID != o.UserID && (e.Kind != reversal || e.UserID != creditOf(payment).UserID):
		return EffectDiffers, fmt.Sprintf("%s %s is another user's than the order", e.Kind, e.Ref)
	case e.Kind == credit && e.Amount != pointsFor(o):
		return EffectDiffers, fmt.Sprintf("credited %d for %d minor units of %s, expected %d", e.Amount, o.Amount, o.Currency, pointsFor(o))
	case e.Kind == reversal && e.Amount != pointsFor(o) && e.Amount != creditOf(payment).Amount:
		return EffectDiffers, fmt.Sprintf("reversed %d, expected %d", e.Amount, pointsFor(o))
	}
	switch e.State {
	case "FAILED":
		return EffectFailed, fmt.Sprintf("%s %s was given up", e.Kind, e.Ref)
	case "UNKNOWN":
		return EffectUnknown, fmt.Sprintf("whether %s %s was done is not known", e.Kind, e.Ref)
	case "PENDING", "SENDING", "RETRY":
		if c.overdue(r.fact.UpdatedAt) {
			return EffectLate, fmt.Sprintf("%s %s is %s since %s", e.Kind, e.Ref, e.State, clock(r.fact.UpdatedAt))
		}
	}
	return "", ""
}

// creditOf is what the payment did. A reversal takes that back, whoever has it: what is wrong with it is reported there, and
// not once more. Where it did nothing there is no amount that a reversal could have.
func creditOf(payment *row) facts.Effect {
	if payment.fact == nil || payment.fact.Effect == nil {
		return facts.Effect{Amount: -1}
	}
	return *payment.fact.Effect
}

// document checks the group's copy of the order, which every event of the order shows as it is now. It must be what the
// newest applied event made it; it may be newer, because the copy is written before the log, but nothing in between.
func (c *comparison) document(g Group, o facts.Order, rows []row) {
	var newest *row
	var copied *facts.Effect
	for i, r := range rows {
		if r.bucket == applied {
			newest = &rows[i]
		}
		if r.fact != nil && r.fact.Effect != nil && r.fact.Effect.Copies > 0 {
			copied = r.fact.Effect
		}
	}
	reached := int64(0) // by the copy or by the log
	if copied != nil {
		reached = copied.Version
	}
	if newest != nil {
		reached = max(reached, newest.event.Version)
		find := func(kind, format string, args ...any) {
			c.find(kind, g.Name, o.OrderNo, newest.event.EventID, format, args...)
		}
		switch {
		case newest.fact.Effect == nil || newest.fact.Effect.Copies == 0:
			find(EffectMissing, "v%d is applied, and there is no document", newest.event.Version)
		case newest.fact.Effect.Copies > 1:
			find(EffectRepeated, "the document is there %d times", newest.fact.Effect.Copies)
		case !matches(*newest.fact.Effect, newest.event.Version, rows):
			find(EffectDiffers, "the document is %s v%d, the newest applied event is %s v%d", newest.fact.Effect.State,
				newest.fact.Effect.Version, newest.event.EventType, newest.event.Version)
		case otherContents(o, *newest.fact.Effect):
			find(EffectDiffers, contentsDiffer, o.Version)
		}
	} else if copied != nil {
		// Nothing is applied, and there is a copy all the same: the service has taken it from the owner of the order.
		newest := o.Events[len(o.Events)-1].EventID
		switch {
		case !matches(*copied, 1, rows):
			c.find(EffectDiffers, g.Name, o.OrderNo, newest, "the document is %s v%d, and no event of the order made it that", copied.State, copied.Version)
		case otherContents(o, *copied):
			c.find(EffectDiffers, g.Name, o.OrderNo, newest, contentsDiffer, o.Version)
		}
	}
	for _, r := range rows {
		if r.bucket == superseded && r.event.Version > reached {
			c.find(SupersededWrong, g.Name, o.OrderNo, r.event.EventID, "v%d is superseded, but the newest that was applied is v%d",
				r.event.Version, reached)
		}
	}
}

// matches reports whether d is the order as one of its events made it, the one with version least or a later one.
func matches(d facts.Effect, least int64, rows []row) bool {
	for _, r := range rows {
		if r.event.Version == d.Version && d.Version >= least {
			return d.State == stateAfter[r.event.EventType]
		}
	}
	return false
}

const contentsDiffer = "the document and the order are both v%d and differ: in user, title, amount, currency, state or a time"

// otherContents reports whether d is a copy of the order as it is now, and yet another. A copy of another version is not
// compared: the event that it lacks is on its way, or a finding. An order that contradicts its own events is a finding too,
// and not once more here.
func otherContents(o facts.Order, d facts.Effect) bool {
	if d.Version != o.Version || d.Digest == o.Digest || d.Digest == "" || o.Digest == "" {
		return false
	}
	kind, _ := historyFault(o)
	return kind == ""
}

func (c *comparison) addPoints(g Group, o facts.Order, rows []row) {
	sum := c.report.Checked.Points[g.Name]
	payment := paymentOf(rows)
	for _, r := range rows {
		switch {
		case r.event.EventType == paymentSucceeded:
			sum.Expected += pointsFor(o)
		case r.event.EventType == orderCanceled && payment != nil:
			sum.Expected -= pointsFor(o)
		}
		if r.fact == nil || r.fact.Effect == nil {
			continue
		}
		amount := r.fact.Effect.Amount * int64(r.fact.Effect.Copies)
		switch r.fact.Effect.Kind {
		case credit:
			sum.Credited += amount
		case reversal:
			sum.Reversed += amount
		}
	}
	c.report.Checked.Points[g.Name] = sum
}
