// Package consumer takes an event from Kafka to a handler's committed effect. A service supplies a function and its
// group's name; the rest is the promise of this package: one effect per event, nothing stuck, nothing lost.
//
//	Kafka ─▶ receive ─▶ decode ─▶ inbox.Once ─▶ handler ─▶ commit ─▶ ack
//	            │          │           │            └─ error ─▶ inbox.Fail: RETRY, WAITING, REJECTED, DEAD ─▶ ack
//	            │          │           └─ known already ─▶ ack
//	            │          └─ cannot be read ─▶ dead letter ─▶ ack
//	            └─ nothing could be recorded ─▶ no ack: the partition pauses and tries again
//	retry lane ─▶ claim ─▶ the same handler, the same answers
//
// Run does it with the two kinds of handler: InTransaction for an effect in the service's own database, Outside for a
// versioned, repeatable write elsewhere. shared/batch brings many messages to one transaction (member.go).
//
// What a handler answers:
//
//	nil             applied                       Ignored, Superseded   done, with that outcome; nothing was written
//	Transient(err)  later, counted; the default   Waiting(err)          later, not counted, up to a limit
//	BadData(err)    dead letter                   Refused(err)          recorded, not tried again
//	Down(err)       nothing recorded: the trouble is not the message's; the partition pauses
//	panic           an attempt, as Transient
//
// A message that ends the process leaves its partition after three times, and has its other attempts in the lane (hand.go).
// What an event means whose earlier versions are missing, a Guard says: applied, awaited or healed (guard.go). Many
// failures in a row stop the recording of failures (breaker.go). Decisions of operators come in through office.go.
//
// Shutdown is never a failure: what runs is finished, what is not finished in time is left unacked and comes again.
//
// The package does not own: the log and the lane's tables (shared/inbox), the subscriber's settings (shared/kafka), and
// what an event means.
package consumer
