// Package event is the contract between the services: what an event is, which events exist, how one travels.
//
// An event is a fact about an order. It is written as an outbox row in the transaction that makes it true, and it
// travels through Kafka as a CloudEvent in binary mode: the attributes are record headers, the value is the row's
// payload byte for byte, the record key is the order number. Events of one order carry the order's version, so that a
// consumer can tell an old fact from a new one whatever the broker does with the order of arrival.
//
// Identity and hash are the two things that every guarantee rests on:
//
//   - NewID gives the same fact the same id, however often and on whatever road it arrives.
//   - Event.Hash tells whether two deliveries with one id are the same fact. Trace and replay marks are not part of it.
//
// The package does not own: where an event is stored (shared/outbox, shared/inbox) and how it is sent (shared/kafka).
package event
