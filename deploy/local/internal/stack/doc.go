// Package stack brings up the whole of paycast on one machine without Docker: the parts (PostgreSQL, Kafka,
// Elasticsearch), the databases and topics, the world outside, and every service that it finds in the repository.
//
// Promise: Up returns when everything is ready, or says which part is not and why, and then nothing is left running. A
// directory belongs to one stack at a time; a stack that comes back to its directory goes on with its data and secrets.
// Two stacks in two directories share nothing, not even a port.
//
//	lock ▶ secrets ▶ ports ─┬▶ postgres ▶ databases, roles ▶ migrate each service ─┬▶ processes ▶ all ready ▶ env file
//	                        ├▶ kafka ▶ topics ─────────────────────────────────────┤
//	                        └▶ elasticsearch, world ───────────────────────────────┘
//
// Which services there are is written in services/*/service.json and nowhere else: a copied service takes part.
//
// The package does not own: how processes are run and watched (package supervise).
package stack
