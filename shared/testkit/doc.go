// Package testkit gives a test the real parts it runs against, and the faults to run it against.
//
// Promise: a test asks and gets its own: a database on a PostgreSQL server that the test binary shares, a Kafka broker
// of its own, a proxy, a process. All of it is gone when the test is, and the server when the test binary is, however
// that ends. Tests run in parallel, and test binaries side by side.
//
// The package does not own: how the parts run (shared/embedded), and the conformance of consumers
// (shared/consumertest).
package testkit
