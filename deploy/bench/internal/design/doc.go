// Package design holds the relays that the benchmark compares. Each takes the same backlog from a database to Kafka:
//
//	Rows ──Fill──▶ its own table ──Run, in a process of its own──▶ Kafka, and the table says so (Done)
//
// Naive and tuned are Watermill's SQL subscriber behind its Forwarder; ours is shared/outbox; chunks is the shape of the
// best public outbox for Go that we know; limit sends nothing, so it is what the database alone could do.
//
// The package does not own: the servers, the clock and the reading back (internal/stage).
package design
