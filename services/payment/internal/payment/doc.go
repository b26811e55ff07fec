// Package payment owns orders and what the payment provider says about them. Its promise: the state of an order and
// the event that tells of it are committed together or not at all, once per fact, however often, in whatever order and
// under whatever webhook id the provider reports it.
//
//	POST /callbacks/payment ─▶ callback ─▶ decodeNotice ─▶ confirm: one transaction ─▶ wake the relay
//	                           size, type,  what is said    lock order, judge, receipt,
//	                           signature                    order + payment + event | incident
//
// The states of an order; each step raises the version by one and appends one event:
//
//	         OrderCreated            PaymentSucceeded            OrderCanceled
//	(none) ──────────────▶ CREATED ───────────────────▶ PAID ──────────────────▶ CANCELED
//	                          ├── OrderCanceled ──▶ CANCELED
//	                          └── OrderClosed ────▶ CLOSED
//
// A callback that is authentic but does not fit its order changes nothing on it and becomes an incident: a row for a
// person, because there may be money behind it.
//
// The package does not own: how an event row is stored and published (shared/outbox), how a signature is checked
// (shared/webhook), and anything that follows from an event: no consumer is known here by name.
package payment
