package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// payment is the event that the template is about. Only its effect has something to take back.
const payment = "PaymentSucceeded"

// renames are the words of the template and of the copy, in one pass. The template uses one word for two things, itself
// and the unit of its accounts: the first are listed one by one, and all the others are the unit, which becomes credits.
func renames(name, event string, p portPair) *strings.Replacer {
	title := strings.ToUpper(name[:1]) + name[1:]
	pairs := []string{
		`json:"points"`, `json:"credits"`,
		"services/points", "services/" + name,
		"internal/points", "internal/" + name,
		"package points", "package " + name,
		"Package points", "Package " + name,
		"00001_points", "00001_" + name,
		"points_test.go", name + "_test.go",
		"points.Group", name + ".Group",
		"points.Migrations", name + ".Migrations",
		"points.Serve", name + ".Serve",
		"points.Migrate", name + ".Migrate",
		`"points"`, `"` + name + `"`,
		"`points`", "`" + name + "`",
		"# points", "# " + name,
		"redeliver.points", "redeliver." + name,
		"points serve", name + " serve",
		"points migrate", name + " migrate",
		"points-component", name + "-component",
		"paycast points", "paycast " + name,
		"// Points ", "// " + title + " ",

		"points     bigint", "credits    bigint", // aligned
		"t_ledger", "t_" + name + "_ledger",
		"t_account", "t_" + name + "_account",
		" ledger_", " " + name + "_ledger_",

		"8082", fmt.Sprint(p.http),
		"9082", fmt.Sprint(p.ops),

		"OnePoint", "OneCredit", "one point", "one credit", "One point", "One credit",
		"points", "credits", "Points", "Credits",
	}
	if event == payment {
		return strings.NewReplacer(pairs...)
	}
	// Something that the copy ignores: OrderCreated, unless that is its event.
	ignored := "OrderCreated"
	if event == ignored {
		ignored = "OrderClosed"
	}
	status, ok := map[string]string{"OrderCreated": "Created", "OrderCanceled": "Canceled", "OrderClosed": "Closed"}[event]
	if !ok {
		status = "Paid"
	}
	return strings.NewReplacer(append([]string{
		"event.OrderCreated", "event." + ignored,
		payment, event,
		"event.StatusPaid", "event.Status" + status,
		", PaidAt: &someTime", "",
		"paid(", strings.ToLower(event[:1]) + event[1:] + "(",
		"// paid is", "// " + strings.ToLower(event[:1]) + event[1:] + " is",
		"kindCredit", "kindGrant", "CREDIT", "GRANT",
	}, pairs...)...)
}

// edit replaces a passage of a template's file. The new text is renamed like all the rest.
type edit struct{ file, old, new string }

const inside = "internal/points/"

// always are the passages that say that this is the template.
var always = []edit{
	{"main.go", "It is the smallest complete consumer, and the one to copy.",
		"It began as a copy of the template:\n// docs/template.md says what to change in it."},
	{page, "It is the smallest complete consumer, and the template for others: see\n[the template](../template.md).",
		"It began as a copy of the template;\n[docs/template.md](../template.md#what-to-change) says what to change in it."},
}

// withoutReversal are the passages that differ when the event is not a payment: there is nothing to take back, and the
// entries are not of the kinds for which the reconciler knows the amounts.
var withoutReversal = []edit{
	{"main.go", "for what they pay", "for each PaymentSucceeded event"},
	{"openapi.yaml", "[CREDIT, REVERSAL]", "[CREDIT]"},
	{"openapi.yaml", "One per major unit paid, rounded down. A reversal's is negative.", "One per major unit of the order's amount, rounded down."},
	{inside + "serve.go", `turns payments into points. A payment credits its customer once; a paid order that is cancelled takes
// the same points back once. Each effect is a ledger entry in the transaction of the consume log.`,
		`gives points for PaymentSucceeded events, once per order. Each effect is a ledger entry in the
// transaction of the consume log.`},
	{inside + "serve.go", `cancel.go   what a cancellation takes back
//	api.go      what customers may see                          currency.go how many points an amount is
//	schema.go   the tables                                      agree.go    what reconciliation may see
`, `currency.go how many points an amount is
//	api.go      what customers may see                          agree.go    what reconciliation may see
//	schema.go   the tables
`},
	{inside + "serve.go", "\tguard := consumer.NewGuard(p.Metrics, Group, gaps)\n", ""},
	{inside + "serve.go", "guard.Before(Handle)", "Handle"},
	{inside + "handler.go", "\tcase event.OrderCanceled:\n\t\treturn OnOrderCanceled(ctx, tx, e)\n", ""},
	{inside + "account.go", "kindCredit is a kind of ledger entry; cancel.go has the other one. An order has at most one of each.",
		"kindCredit is the kind of all ledger entries. An order has at most one."},
	{inside + "account.go", "for a paid order", "for an order"},
	{inside + "api.go", "after the payment", "after the event"},
	{inside + "migrations/00001_points.sql", "CHECK ((kind = 'CREDIT' AND points >= 0) OR (kind = 'REVERSAL' AND points <= 0))",
		"CHECK (kind = 'CREDIT' AND points >= 0)"},
	{inside + "points_test.go", "TestAPaymentCredits", "TestAnEventCredits"},
	{inside + "account_test.go", "TestASecondPaymentOfAnOrder", "TestASecondEventOfAnOrder"},
	{inside + "conformance_test.go", "\t\tGap:     consumertest.GapAwaited,\n", ""},
	{page, "for what they pay: one per whole unit of the currency", "for each PaymentSucceeded event: one per whole unit of the order's currency"},
	{page, "; `OrderCanceled`: the same points back, once, and not before its payment", ""},
	{page, "its two kinds are known to the reconciler, which also checks the amounts", "each handled event must have one entry"},
}

// reversal are the files that only a payment needs.
var reversal = []string{inside + "cancel.go", inside + "cancel_test.go"}

// change makes the edits of one file, and fails when a passage is not there exactly once: then the template has changed
// and this file has to follow.
func change(file, text string, edits []edit) (string, error) {
	for _, e := range edits {
		if e.file != file {
			continue
		}
		if n := strings.Count(text, e.old); n != 1 {
			return "", fmt.Errorf("%s has %d times, instead of once: %q; tools/newservice/renames.go does not fit the template any more",
				filepath.Join(template, file), n, e.old)
		}
		text = strings.Replace(text, e.old, e.new, 1)
	}
	return text, nil
}
