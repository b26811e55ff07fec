// Package replay handles messages once more, for one group only, under the eyes of an operator.
//
//	choose ─▶ Plan: ids frozen, hash over them, what each would do
//	            └▶ Rehearse: the handler in a transaction that is rolled back; a look, where its effect is elsewhere
//	            └▶ Start ─▶ 1 ─▶ 10 ─▶ the rest at a rate ─▶ DONE
//	                         └─ a failure, growing lag, a stuck lane, an altered letter ─▶ PAUSED, with its cause
//	a dead letter            ─▶ the group's own retry lane
//	an event it has not seen ─▶ payment's outbox or archive ─▶ the group's redelivery topic
//	Reapply: an effect that was lost though the log says applied ─▶ the retry lane
//
// Promise: a replayed message is the one that was sent, with its id, its key, its headers and its bytes, so the consume
// log decides as for any other delivery: what is SUCCESS is never done again. The loop may be killed at any moment and
// goes on elsewhere without repeating an effect.
//
// The states of a job:
//
//	PLANNED ─▶ RUNNING ─▶ DONE       each message is settled
//	              │ ▲
//	              ▼ │                 going on begins with one message again
//	           PAUSED ─▶ CANCELED    also from PLANNED and RUNNING; what has begun is finished by the lane
//
// The states of an item:
//
//	PENDING ─▶ CLAIMED ─▶ BEGUN ─▶ SETTLED
//	               │  a lease; taken over when it runs out
//	               └─▶ SETTLED    there was nothing to do, as when somebody else released the letter
//
// A replayed message has one attempt. Still bad, it is a dead letter again, the same one, with one attempt more. Jobs that
// have ended are deleted after Keep; what the audit says of them stays.
//
// The tables stand in inbox.Migrations, beside the rows that a job moves. The package does not own these rows
// (shared/inbox), the handler (shared/consumer), nor the outbox (the payment service).
package replay
