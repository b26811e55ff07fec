// Package embedded runs the real parts that paycast needs, without Docker: PostgreSQL 18 and a Kafka broker (kfake)
// that keeps its data on disk. Tests use it through shared/testkit, and deploy/local starts its parts with it.
//
// Promise: a part is one operating-system process with one pid, on one directory. It may be killed, paused and started
// again on that directory, and what it had acknowledged is still there. It never outlives the process that started it,
// however that one ends.
//
//	PreparePostgres ─▶ binaries (fetched once, or the machine's) ─▶ data directory (a copy of a ready one)
//	       │            ─▶ who runs it (never root)
//	       ▼
//	   exec.Cmd ── Start ──▶ running ── SIGINT ──▶ stopped
//	                            │ SIGKILL, or our own death
//	                            ▼
//	                         crashed ── PreparePostgres on the same directory ──▶ recovers
//
// The package does not own: databases, roles and schemas (shared/postgres), topics beyond the ones that a broker is
// started with (shared/kafka), and restarts: whoever starts a part decides.
package embedded
