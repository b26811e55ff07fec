// Package lease holds the rules by which several processes share the rows of a table, without a row lock or a
// transaction while one of them talks to the network.
//
//	due ──claim──▶ held by a token until the lease ends ──settle──▶ settled
//	                   └──the lease ends unsettled──▶ taken over
//
// The rules, which each table's SQL follows:
//
//   - Claim is one short statement. It writes a fresh token and, by the database's clock, the end of the lease.
//   - Settle names the token and the state that the claim left. Zero rows mean that somebody else holds the row now:
//     the settle is fenced, which is counted and is no error.
//   - Work is begun only while enough of the lease is left for its deadline and for the settle (Hold.MayBegin). The
//     holder measures this on its own monotonic clock, from before the claim was sent, so no clock need agree with
//     another.
//   - Takeover of an expired lease is a statement and a metric of its own.
//
// A lease cannot stop a process that was paused in the middle of its work: the work may be done twice. That is why what
// is done must be repeatable, and why the settle is fenced.
//
// The package does not own any table or SQL.
package lease
