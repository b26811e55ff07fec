// Package real runs Apache Kafka and Elasticsearch themselves, without Docker: on Java 17 or newer, from the artifacts
// that their makers publish for Maven.
//
// Promise: what is missing on the machine is said in one sentence, with what to do about it. Nothing is downloaded twice.
// A part is a process that can be killed, paused and started again on its directory, and it never runs as root where its
// maker refuses that.
//
//	Java? Maven? ─▶ fetched into the cache, once ─▶ configuration for these ports ─▶ exec.Cmd
//
// The package does not own: the life of the process (package supervise), topics and indices.
package real
