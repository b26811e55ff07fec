package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os/user"
	"strings"

	"example.com/paycast/shared/audit"
)

// act is common to all verbs that change something.
type act struct {
	Reason string `help:"Why; it stays in the service's audit." required:"" placeholder:"TEXT"`
	By     string `help:"Who; default: the user of this system." placeholder:"PERSON"`
	Yes    bool   `help:"Do it. Without this, only what would change is shown."`
}

// path of the act. In a dry run the service does all of it and rolls back, so what is shown is what would be.
func (c act) path(path string) string {
	switch {
	case c.Yes:
		return path
	case strings.Contains(path, "?"):
		return path + "&dry_run=true"
	}
	return path + "?dry_run=true"
}

const nothingChanged = "Nothing was changed. Add --yes to do it."

// change is an act on things that have ids.
type change struct {
	act
	IDs     []string `arg:"" name:"id" help:"One or more, as list shows them."`
	Service string   `help:"In this process; needed only when an id is there in more than one." placeholder:"NAME"`

	query string // "?late=true"; ids are escaped, so theirs is the only question mark
}

type outboxRelease struct {
	change
	Late bool `help:"Also a skipped event that later events of its order have passed: it arrives behind them."`
}

// Run releases events.
func (c outboxRelease) Run(a *app) error {
	if c.Late {
		c.query = "?late=true"
	}
	return a.change(events, "release", c.change)
}

type outboxSkip struct{ change }

// Run skips events.
func (c outboxSkip) Run(a *app) error { return a.change(events, "skip", c.change) }

type destinationsOpen struct{ change }

// Run opens destinations.
func (c destinationsOpen) Run(a *app) error { return a.change(destinations, "open", c.change) }

type lettersRelease struct{ change }

// Run releases letters.
func (c lettersRelease) Run(a *app) error { return a.change(letters, "release", c.change) }

type lettersDiscard struct{ change }

// Run discards letters.
func (c lettersDiscard) Run(a *app) error { return a.change(letters, "discard", c.change) }

type lettersSkip struct{ change }

// Run skips letters.
func (c lettersSkip) Run(a *app) error { return a.change(letters, "skip", c.change) }

type incidentsResolve struct{ change }

// Run resolves incidents.
func (c incidentsResolve) Run(a *app) error { return a.change(incidents, "resolve", c.change) }

// person is who acts and why, as every service wants it.
func person(by, reason string) (audit.By, error) {
	if by == "" {
		u, err := user.Current()
		if err != nil || u.Username == "" {
			return audit.By{}, usage{errors.New("this system does not say who you are; give --by PERSON")}
		}
		by = u.Username
	}
	return audit.By{Actor: by, Reason: reason}, nil
}

// changed is the outcome for one id.
type changed struct {
	ID      string          `json:"id"`
	Service string          `json:"service,omitempty"`
	Verb    string          `json:"verb"`
	Done    bool            `json:"done"` // false: a dry run, or an error
	Before  json.RawMessage `json:"before,omitempty"`
	After   json.RawMessage `json:"after,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// change asks for each id in turn and goes on after a refusal: the ids have nothing to do with each other.
func (a *app) change(k kind, verb string, c change) error {
	who, err := person(c.By, c.Reason)
	if err != nil {
		return err
	}
	var outcomes []changed
	var failed error
	absent := 0
	for _, id := range c.IDs {
		one, err := a.changeOne(k, verb, id, c, who)
		if err != nil {
			one.Error = err.Error()
			failed = errors.Join(failed, err)
			if errors.As(err, new(nothing)) {
				absent++
			}
		}
		outcomes = append(outcomes, one)
	}
	if len(c.IDs) > 1 && failed != nil && absent < len(c.IDs) {
		failed = errors.New(failed.Error()) // beside others, one that is not there is a failure like any other
	}
	if a.json {
		return errors.Join(failed, printJSON(a.out, outcomes))
	}
	if !c.Yes && failed == nil {
		fmt.Fprintln(a.out, nothingChanged)
	}
	return failed
}

func (a *app) changeOne(k kind, verb, id string, c change, who audit.By) (changed, error) {
	outcome := changed{ID: id, Verb: verb}
	f, err := a.find(k, id, c.Service)
	if err != nil {
		return outcome, err
	}
	outcome.Service, outcome.Before = f.From, f.Thing
	if err := f.process.PostJSON(a, c.path(k.path+"/"+url.PathEscape(id)+"/"+verb+c.query), who, &outcome.After); err != nil {
		return outcome, a.fleet.Explain(f.process, err)
	}
	outcome.Done = c.Yes
	if a.json {
		return outcome, nil
	}
	return outcome, a.tell(k, verb, f, outcome, who)
}

// tell shows what is, or would be, different.
func (a *app) tell(k kind, verb string, f *found, outcome changed, who audit.By) error {
	after, err := fields(outcome.After)
	if err != nil {
		return err
	}
	was := map[string]string{}
	for _, field := range f.fields {
		was[field.name] = text(field.value)
	}
	var differs []field
	for _, field := range after {
		before, known := was[field.name]
		if now := text(field.value); before != now {
			if !known {
				before = "-"
			}
			differs = append(differs, field)
			differs[len(differs)-1].value = before + " → " + now
		}
	}
	mode := "would " + verb
	if outcome.Done {
		mode = "done: " + verb
	}
	fmt.Fprintf(a.out, "%s %s, by %s: %s\n", mode, f.title(k, outcome.ID), text(who.Actor), text(who.Reason))
	return list(a.out, differs)
}
