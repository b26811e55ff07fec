// Package kafka builds the Watermill publisher and subscriber with the settings that the guarantees rest on, and
// answers the few questions about offsets that reconciliation and metrics ask.
//
//	event.Record ──Message──▶ message.Message ──publisher──▶ Kafka ──subscriber──▶ message.Message ──Record──▶ event.Record
//
// A Watermill message carries a record's key and headers in one reserved metadata entry. Metadata is a map of strings,
// so anything less would lose repeated headers, nil values and their order. On the wire there is no header of Watermill.
//
// The promises:
//
//   - An accepted send is stored by all in-sync replicas, and its partition and offset can be read (Track).
//   - A record's partition depends on its key alone.
//   - A subscriber starts at the oldest record, never jumps over a missing offset in silence, and never fails to turn a
//     record into a message, whatever its bytes.
//   - Neither side creates a topic. EnsureTopics does, in one job.
//
// The package does not own: what an error means for the row or message at hand (shared/outbox, shared/consumer).
package kafka
