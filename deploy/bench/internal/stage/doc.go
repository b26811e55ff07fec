// Package stage runs one drain: a fresh database with a backlog, a broker, relays in processes of their own, a clock,
// and the reading back of everything that has arrived.
//
//	template database ──copy──▶ database ─┐
//	                                      ├──▶ relay processes ──▶ broker process ──▶ read back: count, distinct, order
//	                            "go" ─────┘        │
//	                              └──── the clock ──── until Kafka has them all and the table says so
//
// The clock runs from the moment that the relays, started and waiting, are told to go. Their first connections count.
//
// The package does not own: what a relay does (internal/design), which drains are run and what is made of their figures
// (the program).
package stage
