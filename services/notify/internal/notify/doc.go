// Package notify turns payments and cancellations into text messages: one message each, however often the event is
// delivered, the sender dies or the provider's answer is lost.
//
//	event ─▶ consumer ─▶ one transaction: consume log + t_notification_command
//	                                                  │ claim (lease, token)
//	         sender: unclear? ask the provider ─▶ ask payment for the phone ─▶ wait for the shared rate ─▶ POST, key = command id
//	                                                  ▲                                                      │
//	                                                  └──────────────── settle, fenced ◀─────────────────────┘
//
// The states of a command:
//
//	PENDING ──claim──▶ SENDING ──accepted──▶ SENT
//	   ▲                 │ │ │
//	   └────not begun────┘ │ ├──refused for good──▶ FAILED
//	                       │ └──not now (429, 5xx and not accepted, contact unknown)──▶ RETRY ──claim──▶ SENDING
//	                       └──no answer, or its sender is gone──▶ UNKNOWN ──claim──▶ SENDING, which asks first
//
// A message cannot be sent and recorded in one transaction. What closes the gap is the idempotency key: it is the
// command's id, it never changes, and the provider accepts it once. An unknown outcome is therefore asked about before
// it is repeated, and a repetition that was needless all the same does no harm.
//
// Phone numbers are not in events and not in this database: the sender asks payment for one when it needs it, hands it
// to the provider and forgets it.
package notify
