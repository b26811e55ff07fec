// Package outbox delivers every event that a committed transaction has appended, at least once and in order per key.
//
//	business transaction ──Append──▶ t_outbox_event ──claim──▶ Subscriber ──▶ Watermill Forwarder ──▶ Publisher ──▶ Kafka
//	                                        ▲                      │                                      │
//	                                        └───────settle─────────┴───────────── the answer ◀────────────┘
//
// The states of a row:
//
//	PENDING ──claim──▶ SENDING ──accepted──▶ SENT
//	   ▲                 │ ├──rejected───▶ DEAD ──release──▶ RETRY
//	   └────not sent─────┤ └──unknown, unreachable, lease expired──▶ RETRY ──claim──▶ SENDING
//	                     └──crashed the relay again and again, claimed alone──▶ DEAD
//
// The promises:
//
//   - Append refuses a handle outside a transaction, so the event stands or falls with the change that it tells of.
//   - A row becomes SENT only after Kafka has confirmed it. If the confirmation or the row's update is lost, the event
//     is sent again with the same id, key, headers and bytes: twice rather than never.
//   - First copies of one key leave in version order, whatever number of relays runs. A row that must wait for another
//     carries that row's id in held_by.
//   - Only a row's own fault makes it DEAD. An unreachable broker counts nothing against it; a destination's fault
//     pauses the destination.
//   - A relay that dies is replaced after its lease; one that was only paused cannot overwrite its successor's work.
//     Each claim is noted in t_outbox_claim: there a takeover looks for leases that are over, and not among the rows.
//
// The package does not own: what an event is (shared/event), the client's settings (shared/kafka), and what happens to
// an event twice delivered (shared/inbox).
package outbox
