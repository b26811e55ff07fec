// Package consumertest is the conformance suite for consumers. A service that passes it has one effect per event,
// blocks nothing, and loses nothing, whatever the cases here do to it:
//
//	func TestConformance(t *testing.T) {
//		consumertest.Run(t, consumertest.Service{
//			Program: "../..", Group: Group, Migrations: Migrations,
//			Table: "t_ledger", Effects: "SELECT count(*) FROM t_ledger WHERE order_no = ? AND kind = 'CREDIT'",
//			Gap: consumertest.GapAwaited,
//		})
//	}
//
// Each case runs the service's own program as a process, on a database and a broker of its own, and breaks what
// production breaks: it repeats, reorders, kills, cuts and stops. Faults inside the service's transaction are made by a
// trigger on the table of its effects, so a service needs no hook for the suite.
//
// The suite is tested in turn: a row of consumers that are wrong on purpose, each of which fails the case that names its
// fault.
//
// The package does not own: what an event means to a service. Its own tests say that.
package consumertest
