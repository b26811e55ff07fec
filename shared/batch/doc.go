// Package batch takes many events from Kafka to committed effects in one transaction. It is for consumers that must be
// fast; the promise to each event is the one of shared/consumer, and so are its answers, its lane and its dead letters.
//
//	Kafka ─▶ Subscriber ─▶ one queue per partition ─▶ all that is there, up to Size ─▶ one transaction ─▶ ack all
//	           │                                              │                            │
//	           │ a window of messages is out,                 │                            └─ failed ─▶ each half alone,
//	           │ only the acked prefix is committed           │                                         down to one message
//	           └─ gone at once at a rebalance                 └─ known, conflicting, held, unreadable ─┐       │
//	                                                                                                   ▼       ▼
//	                                                                         one by one, as shared/consumer does it
//
// What it costs: a message that fails takes its neighbours through about 2·log2(Size) more transactions, and a slow
// handler holds up all messages of its batch. CONSUMER_HANDLER_TIMEOUT bounds the whole batch.
//
// The package does not own: the log (shared/inbox), what an answer means and the retry lane (shared/consumer), and the
// settings of the client (shared/kafka).
package batch
