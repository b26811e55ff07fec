package consumertest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var migrations = []postgres.Set{inbox.Migrations, {Name: "subject", FS: fstest.MapFS{"00001_effect.sql": {Data: []byte(`
-- +goose Up
CREATE TABLE t_effect (order_no text NOT NULL, event_type text NOT NULL, created_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE t_projection (order_no text PRIMARY KEY, version bigint NOT NULL);
`)}}}}

func subject(name string) Service {
	gap := GapAllowed
	if strings.Contains(name, "await") && name != "awaits-what-it-does-not-need" {
		gap = GapAwaited
	}
	if strings.Contains(name, "heal") {
		gap = GapHealed
	}
	if strings.HasSuffix(name, "projection") {
		return Service{
			Program: "./internal/subject", Args: []string{name}, Group: "subject", Migrations: migrations,
			Table: "t_projection", Effects: "SELECT count(*) FROM t_projection WHERE order_no = ? AND version >= 2",
			Projection: "SELECT version FROM t_projection WHERE order_no = ?", Gap: gap,
		}
	}
	return Service{
		Program: "./internal/subject", Args: []string{name}, Group: "subject", Migrations: migrations,
		Table: "t_effect", Effects: "SELECT count(*) FROM t_effect WHERE order_no = ? AND event_type = 'PaymentSucceeded'",
		Gap:     gap,
		BadData: func(o event.Order) event.Order { o.Title = "bad"; return o },
		Panics:  func(o event.Order) event.Order { o.Title = "panic"; return o },
	}
}

func TestARightConsumerPassesEveryCase(t *testing.T) {
	t.Parallel()
	Run(t, subject("right"))
}

func TestARightConsumerThatAwaitsPassesWhatIsPeculiarToIt(t *testing.T) {
	t.Parallel()
	tooEarly(t, subject("right-awaiting"))
}

func TestARightProjectionPassesWhatIsPeculiarToProjections(t *testing.T) {
	t.Parallel()
	olderVersion(t, subject("right-projection"))
}

func TestARightProjectionThatHealsPassesWhatIsPeculiarToIt(t *testing.T) {
	t.Parallel()
	healsFromOwner(t, subject("right-healing-projection"))
}

// finds names, for each wrong consumer, the cases that must fail because of its fault, and a part of what they say then.
// Another failure would prove nothing.
var finds = map[string]map[string]string{
	"no-dedupe": {"an event that comes twice has one effect": "effects instead of 1"},
	"dedupe-in-memory": {
		"members that come and go under load change nothing":          "effects instead of 1",
		"killed after commit and before ack, the effect stays single": "effects instead of 1",
		"the whole history once more changes nothing":                 "effects instead of 1",
	},
	"watermills-deduplicator": {"a message that fails is tried again and holds nobody up": "the effect of bad"},
	"look-then-insert": {
		"two copies at the same time have one effect and no error":           "effects instead of 1",
		"a member that slept over its session changes nothing when it wakes": "effects instead of 1",
	},
	"does-not-heal-projection": {
		"a missing version is healed from the order's owner, or nothing is recorded": "not ready while the owner does not answer"},
	"counts-silence-when-healing-projection": {
		"a missing version is healed from the order's owner, or nothing is recorded": "not ready while the owner does not answer"},
	"unversioned-projection":         {"an older version never replaces a newer one": "version 2 stands"},
	"awaits-what-it-does-not-need":   {"a version that comes too early is handled as the policy says": "is SUCCESS"},
	"does-not-await-what-it-needs":   {"a version that comes too early is handled as the policy says": "is WAITING"},
	"ack-before-commit":              {"killed inside the transaction, the effect comes once": "the effect of order-1"},
	"mark-before-effect":             {"killed inside the transaction, the effect comes once": "the effect of order-1"},
	"effect-outside-the-transaction": {"log and effect are committed together or not at all": "1 effects are there"},
	"swallow-and-ack":                {"a message that never succeeds is parked after its attempts": "the message is parked"},
	"nack-for-ever": {
		"a message that fails is tried again and holds nobody up":                  "the effect of order-000",
		"later versions of an order wait behind a failed one, other orders do not": "the effect of good",
		"what cannot be read is parked byte for byte and the next is handled":      "the effect of order-2",
		"bad data is parked at once with its bytes":                                "the effect of good",
		"a panic is an attempt and the process stays up":                           "the effect of order-000",
	},
	"no-recover": {
		"a panic is an attempt and the process stays up":                                        "the effect of order-000",
		"a message that ends its process leaves its partition and is parked after its attempts": "it is still handled",
	},
	"takes-the-shape-for-granted": {"whatever shape an event has, it is handled or parked, and the next is handled": "the effect of good"},
	"no-unknown-fields":           {"fields of a later producer change nothing": "the effect of order-1"},
	"watermills-defaults": {
		"what was published before the first start is handled, and once more without offsets changes nothing": "the effect of order-000",
	},
	"park-on-any-error":         {"stopped under load, nothing is parked or doubled and the exit code is 0": "messages are parked"},
	"ends-without-its-database": {"while the database is down nothing is parked and the process is not ready": "the process is up before its database"},
	"counts-an-outage":          {"while the database is down nothing is parked and the process is not ready": "the effect of order-000"},
	"no-request-hash":           {"the same id with another body is a conflict and is never applied": "0 messages are parked instead of 1"},
}

func TestEachFaultIsFoundByTheCaseThatNamesIt(t *testing.T) {
	t.Parallel()
	cases := map[string]Case{}
	for _, c := range Cases() {
		cases[c.Name] = c
	}
	for name, expected := range finds {
		for c, found := range expected {
			require.Contains(t, cases, c)
			t.Run(name+"/"+c, func(t *testing.T) {
				t.Parallel()
				s := subject(name)
				// A slow machine may not come to the fault in time. Only then it gets more.
				for s.Within = 8 * time.Second; ; s.Within *= 2 {
					said := failureOf(t, cases[c], s)
					if strings.Contains(said, found) {
						return
					}
					require.Less(t, s.Within, time.Minute, "the suite did not notice, or noticed something else: %q", said)
				}
			})
		}
	}
}

func TestEveryCaseIsFailedBySomeWrongConsumer(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, names := range finds {
		for name := range names {
			found[name] = true
		}
	}
	for _, c := range Cases() {
		require.True(t, found[c.Name], "no wrong consumer fails: %s", c.Name)
	}
}

// failing is a test whose failure is what the real test waits for.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *failing) Errorf(format string, args ...any) { f.message = fmt.Sprintf(format, args...) }

// failureOf runs a case as a test of its own and returns the message with which it failed.
func failureOf(t *testing.T, c Case, s Service) string {
	f := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(f, s)
	}()
	<-done
	t.Log(f.message)
	return f.message
}
