// Package consume holds the consumers that the benchmark compares: the same effect of the same events, once each, in
// PostgreSQL.
//
//	lean      Watermill's subscriber, one message of a partition at a time, one transaction for each: two statements
//	          for the log and one for the effect, the very ones of the batches
//	single    shared/consumer as the services run it
//	each      shared/batch, the handler called for each event
//	together  shared/batch, the handler called for the batch
//
// The package does not own: the databases and brokers, and the clock (internal/stage).
package consume
