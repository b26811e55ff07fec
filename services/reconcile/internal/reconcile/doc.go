// Package reconcile answers one question: does all derived state agree with the source?
//
// Promise: a run that says `agree` has accounted for every event of every order in every group, exactly once each; a run
// that says `differ` names each difference, and each of them was still there at a second look; a run that could not ask
// somebody says `failed` and whom, never `agree`.
//
//	POST /runs ─▶ Begin (one run per database) ─▶ Snapshot ─▶ Compare ─▶ Confirm ─▶ End ─▶ GET /runs/{id}
//	                                                 │
//	                     per group: committed offsets (Kafka), then its facts; the source last
//
// A run is running, then agree, differ or failed. An event is, per group, exactly one of applied, superseded, ignored,
// rejected, waiting, retrying, dead, in_flight, missing or unclear; the last two and dead are findings.
//
// In flight is a rule and not a grace period. A group commits an offset only after the log row of every event below it
// is committed. The offsets are read before the log, so an event below them that has no row is missing, however young it
// is, and one at or above them is in flight, however long that lasts (beyond a bound it is reported as late). The source
// is read last, so that no log row can name an event that the source has yet to show.
//
// Which rules an effect has to keep follows from its kind (CREDIT, DOCUMENT, ...) and not from the group's name: a new
// service takes part by serving its facts.
//
// The package does not own: other services' databases, which it never reads; repair, which it never does; events that
// an archive has taken away. A run holds all facts in memory, some hundred bytes for each event and group.
package reconcile
