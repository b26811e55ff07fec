package consumertest

import (
	"testing"
	"time"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
)

// Service is a consumer under test.
type Service struct {
	Program    string         // its main package, relative to the test or an import path
	Args       []string       // how it is started; nil means "serve"
	Group      string         // its consumer group
	Migrations []postgres.Set // of its database, the consume log among them
	Table      string         // where its effects stand, or are recorded; has a column order_no
	Event      string         // the type of event that has effects; empty means PaymentSucceeded
	Effects    string         // counts the effects of an order's one event of that type: SELECT ... WHERE order_no = ?

	// Gap is what a version does that comes before the one in front of it.
	Gap Gap
	// SkipsDead says that a dead letter holds nobody: later versions of the order go on without it.
	SkipsDead bool
	// Projection gives the last applied version of an order: SELECT ... WHERE order_no = ?. Empty for a service whose
	// effects are not a copy of the order. GapHealed needs it.
	Projection string
	// Env gives what the service needs beside database, Kafka and addresses. It may be nil.
	Env func(t testing.TB) service.Env
	// BadData turns a good order into one that can never be handled. A service that can handle all has none.
	BadData func(event.Order) event.Order
	// Panics turns a good order into one over which the handler panics. Well-behaved services have none.
	Panics func(event.Order) event.Order
	// Within bounds what should happen soon; 0 means 2 min, enough for a very busy machine and a lost group member.
	Within time.Duration
}

// Gap is a policy for versions that are missing.
type Gap int

const (
	GapAllowed Gap = iota // the early version is applied at once: it needs nothing of what is missing
	GapAwaited            // it waits, uncounted, and is applied after what it has waited for
	GapHealed             // the order is read at PAYMENT_OPS_URL and applied as it is there; without the URL as GapAllowed
)

// Case is one promise, with what puts it to the test.
type Case struct {
	Name   string
	Run    func(t testing.TB, s Service)
	Needed func(s Service) bool // nil: by every service
}

// Cases are all promises.
func Cases() []Case {
	return []Case{
		{Name: "an event that comes twice has one effect", Run: comesTwice},
		{Name: "two copies at the same time have one effect and no error", Run: twoAtOnce},
		{Name: "the same id with another body is a conflict and is never applied", Run: conflict},
		{Name: "log and effect are committed together or not at all", Run: togetherOrNotAtAll},
		{Name: "killed inside the transaction, the effect comes once", Run: killedInside},
		{Name: "killed after commit and before ack, the effect stays single", Run: killedAfterCommit},
		{Name: "a message that ends its process leaves its partition and is parked after its attempts", Run: endsItsProcess},
		{Name: "a message that fails is tried again and holds nobody up", Run: failsForAWhile},
		{Name: "later versions of an order wait behind a failed one, other orders do not", Run: laterVersionsWait},
		{Name: "a message that never succeeds is parked after its attempts", Run: neverSucceeds},
		{Name: "what cannot be read is parked byte for byte and the next is handled", Run: unreadable},
		{Name: "bad data is parked at once with its bytes", Run: badData, Needed: func(s Service) bool { return s.BadData != nil }},
		{Name: "a panic is an attempt and the process stays up", Run: panics, Needed: func(s Service) bool { return s.Panics != nil }},
		{Name: "while the database is down nothing is parked and the process is not ready", Run: databaseDown},
		{Name: "stopped under load, nothing is parked or doubled and the exit code is 0", Run: stoppedUnderLoad},
		{Name: "members that come and go under load change nothing", Run: membersComeAndGo},
		{Name: "a member that slept over its session changes nothing when it wakes", Run: sleptOverItsSession},
		{Name: "what was published before the first start is handled, and once more without offsets changes nothing", Run: firstStart},
		{Name: "fields of a later producer change nothing", Run: laterProducer},
		{Name: "whatever shape an event has, it is handled or parked, and the next is handled", Run: oddShapes},
		{Name: "a version that comes too early is handled as the policy says", Run: tooEarly},
		{Name: "a missing version is healed from the order's owner, or nothing is recorded", Run: healsFromOwner, Needed: func(s Service) bool { return s.Gap == GapHealed }},
		{Name: "an older version never replaces a newer one", Run: olderVersion, Needed: func(s Service) bool { return s.Projection != "" }},
		{Name: "the whole history once more changes nothing", Run: historyAgain},
	}
}

// Run holds the service to every promise.
func Run(t *testing.T, s Service) {
	for _, c := range Cases() {
		if c.Needed != nil && !c.Needed(s) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t, s)
		})
	}
}
