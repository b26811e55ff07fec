// Package demo tells one story on a running stack: three customers order and pay, callbacks come doubled, forged and
// wrong, the relay and a consumer die in the middle, and in the end everything agrees.
//
// Promise: every line says what was read back from the part that it names, after it happened: the outbox row from the
// database, the record from the broker's partition and offset, the balance from the points service, the message from
// the SMS provider, the document from the index. Tell returns nil only when all of it is there exactly once and the
// reconciliation says so too.
//
// The package does not own: bringing the stack up and down (package stack).
package demo
