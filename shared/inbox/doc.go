// Package inbox is the consume log: it makes the effect of an event happen once per consumer group, however often, on
// whatever road and in whatever order the event arrives.
//
//	delivery ─▶ Once, in the handler's own transaction
//	              lock (group, aggregate) ─▶ insert the log row ─▶ nobody before me? ─▶ handler ─▶ SUCCESS
//	                                            │ it is there          │ there is
//	                                            ▼                      ▼
//	                                  duplicate or conflict      WAITING, held by it
//	handler failed ─▶ Fail, in a new transaction: RETRY, WAITING, REJECTED or DEAD, with the message beside it
//	process died   ─▶ Take, before the first handler of a partition, knows it; Fail moves the message to the lane
//	retry lane     ─▶ Claim, TakeOver ─▶ Once or Fail, fenced by the claim's token
//	operator       ─▶ Release, Skip, Discard, Reapply; Erase, of all that names a customer
//
// The states of a row:
//
//	PROCESSING ─▶ SUCCESS     in one transaction, so that nobody sees the first; or claimed from the lane, with a lease
//	           ─▶ RETRY       failed, due again later
//	           ─▶ WAITING     due later, or held by an unfinished earlier version of its aggregate
//	           ─▶ REJECTED    refused by the business, or discarded by an operator
//	           ─▶ DEAD        beside a dead letter; later versions of the aggregate stay held until it is released or discarded
//
// What rests on what: the primary key (consumer_group, event_id) makes the effect single; the lock, taken before
// anything is read, makes the order of versions hold between partition, lane and zombie; the request hash tells a
// repetition from another fact under the same id. The message of an unfinished row is kept byte for byte in the same
// transaction that records why, so that the offset may move on.
//
// The package does not own: what a handler's error means and when to try again (shared/consumer), the offset, and the
// handler's own tables.
package inbox
