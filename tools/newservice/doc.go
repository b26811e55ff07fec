// Newservice copies the template, services/points, into a service of another name:
//
//	make new-service NAME=coupon EVENT=PaymentSucceeded
//
// The copy builds, passes its tests and the conformance suite, and takes part in the local stack, in Compose and in
// reconciliation. Either everything is there afterwards or nothing has changed: all of it is worked out in memory first,
// where every refusal happens, and only then written.
//
//	names.go    which names and events are refused, and why    copy.go     the template's files under their new names
//	renames.go  the words of the template and of the copy      workspace.go go.work, compose.yaml and the ports
//	plan.go     all changes, worked out                        apply.go    all changes, written or taken back
//
// Nothing is parsed and written again: what stands in go.work and compose.yaml keeps its form and comments, and what
// stands there for points is put there once more.
package main
