package main

import (
	"errors"
	"fmt"
	"net/url"

	"example.com/paycast/shared/audit"
)

type lettersErase struct {
	act
	User string `arg:"" help:"The customer's user id."`
}

// Run asks every process that has letters. Each service is on its own: one that cannot be asked stops no other, and the
// command can be run again.
func (c lettersErase) Run(a *app) error {
	who, err := person(c.By, c.Reason)
	if err != nil {
		return err
	}
	asked := struct {
		audit.By
		UserID string `json:"user_id"`
	}{who, c.User}
	rows, failed := []row{}, []error{}
	for _, answer := range a.fleet.Ask(a, letters.path, url.Values{"limit": {"1"}}) {
		r := row{"service": answer.From.Name, "done": c.Yes}
		err := answer.Err
		if err == nil {
			var told struct{ Erased int }
			err = answer.From.PostJSON(a, c.path(letters.path+"/erase"), asked, &told)
			r["messages"] = told.Erased
		}
		if err != nil {
			failed = append(failed, a.fleet.Explain(answer.From, err))
			continue
		}
		rows = append(rows, r)
	}
	switch {
	case a.json:
		err = printJSON(a.out, rows)
	case len(rows) > 0:
		err = table(a.out, []string{"service", "messages", "done"}, rows)
	}
	if !c.Yes && !a.json {
		fmt.Fprintln(a.out, nothingChanged)
	}
	return errors.Join(append(failed, err)...)
}
