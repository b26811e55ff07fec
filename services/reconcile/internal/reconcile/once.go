package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
)

// Once runs one reconciliation and prints it, as a table or, with --json, as GET /runs/{id} would show it. The error is
// nil only when all agree.
func Once(ctx context.Context, env service.Env) error { return once(ctx, env, os.Stdout) }

func once(ctx context.Context, env service.Env, out io.Writer) error {
	cfg := defaults()
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	db, err := postgres.Open(ctx, cfg.DatabaseURL, "reconcile-once")
	if err != nil {
		return err
	}
	defer postgres.Close(db)
	store := Store{db}
	b, err := store.Begin(ctx)
	if err != nil {
		return err
	}
	if err := cfg.reconciler(store).Carry(ctx, b); err != nil {
		return err
	}
	run, err := store.Get(context.WithoutCancel(ctx), b.ID)
	if err != nil {
		return err
	}
	if env["--json"] != "" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(run)
	} else {
		err = show(out, run)
	}
	return errors.Join(err, verdict(run))
}

// verdict is nil only when all agree, and says what to do when they do not.
func verdict(run Run) error {
	switch run.Status {
	case Agree:
		return nil
	case Differ:
		return fmt.Errorf("%d findings; GET /runs/%s shows them again", len(run.Findings), run.ID)
	}
	return fmt.Errorf("nothing is known about agreement, because not everybody could be asked: %s", run.Error)
}

// show writes the run as tables: what was counted, what differs, and what to look at next.
func show(out io.Writer, run Run) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "run %s: %s\n", run.ID, run.Status)
	if c := run.Checked; c != nil {
		fmt.Fprintf(w, "%d orders, %d events\n", c.Orders, c.Events)
		for _, currency := range slices.Sorted(maps.Keys(c.Money)) {
			fmt.Fprintf(w, "money %s, minor units\tpaid %d\tby events %d\n", currency, c.Money[currency].Paid, c.Money[currency].Events)
		}
		for _, group := range slices.Sorted(maps.Keys(c.Points)) {
			p := c.Points[group]
			fmt.Fprintf(w, "%s\tcredited %d\treversed %d\texpected %d\n", group, p.Credited, p.Reversed, p.Expected)
		}
		fmt.Fprintf(w, "\nGROUP\t%s\n", strings.ToUpper(strings.Join(buckets, "\t")))
		for _, group := range slices.Sorted(maps.Keys(c.Groups)) {
			fmt.Fprint(w, group)
			for _, bucket := range buckets {
				fmt.Fprintf(w, "\t%d", c.Groups[group][bucket])
			}
			fmt.Fprintln(w)
		}
	}
	if len(run.Findings) > 0 {
		fmt.Fprintf(w, "\nKIND\tGROUP\tORDER\tEVENT\tDETAIL\n")
		kinds := map[string]bool{}
		for _, f := range run.Findings {
			kinds[f.Kind] = true
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", f.Kind, f.Group, f.OrderNo, f.EventID, f.Detail)
		}
		fmt.Fprintf(w, "\nlook next at\n")
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			fmt.Fprintf(w, "%s\t%s\n", kind, nextStep[kind])
		}
	}
	return w.Flush()
}
