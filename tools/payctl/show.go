package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"example.com/paycast/shared/inbox"
	"example.com/paycast/tools/payctl/internal/fleet"
)

// kind is a sort of thing that operators decide about, wherever a service has it.
type kind struct {
	noun  string
	path  string // of one is path/{id}
	key   string // under which it stands in the answer
	title []string
	lost  string // what else may have become of one that is not there
}

var (
	events = kind{noun: "event", path: "/ops/outbox", key: "row", title: []string{"event_type", "order_no"},
		lost: ". A sent event may be archived, where a redelivery and a replay find it"}
	destinations = kind{noun: "destination", path: "/ops/outbox-destinations", key: "destination", title: []string{"state"}}
	letters      = kind{noun: "letter", path: "/ops/dead-letters", key: "letter", title: []string{"error_class", "order_no"}}
	incidents    = kind{noun: "incident", path: "/ops/incidents", key: "incident", title: []string{"kind", "order_no"}}
)

// found is one thing with its audit, as a service has it.
type found struct {
	From  string            `json:"service"`
	Thing json.RawMessage   `json:"thing"`
	Audit []json.RawMessage `json:"audit"`

	process fleet.Process
	fields  []field
}

// find looks for the thing in every process. Two processes of one group, or of one database, show the same thing; of two
// different ones with the same id none is taken.
func (a *app) find(k kind, id, service string) (*found, error) {
	asked, err := a.fleet.Only(service)
	if err != nil {
		return nil, usage{err}
	}
	answers := asked.Ask(a, k.path+"/"+url.PathEscape(id), nil)
	var one *found
	var things, in []string // what there is under this id, and a process of each
	var failed error
	for _, answer := range answers {
		if answer.Err != nil {
			if !fleet.NotFound(answer.Err) {
				failed = errors.Join(failed, a.fleet.Explain(answer.From, answer.Err))
			}
			continue
		}
		var told map[string]json.RawMessage
		var acts []json.RawMessage
		if err := json.Unmarshal(answer.JSON, &told); err != nil {
			return nil, fmt.Errorf("reading the answer of %s: %w", answer.From.Name, err)
		}
		if err := json.Unmarshal(told["audit"], &acts); err != nil {
			return nil, fmt.Errorf("reading the answer of %s: %w", answer.From.Name, err)
		}
		if one == nil {
			one = &found{From: answer.From.Name, Thing: told[k.key], Audit: acts, process: answer.From}
		}
		if thing := string(told[k.key]); !slices.Contains(things, thing) {
			things, in = append(things, thing), append(in, answer.From.Name)
		}
	}
	switch {
	case len(things) > 1:
		return nil, usage{fmt.Errorf("%s %s is there in %s; choose with --service", k.noun, id, strings.Join(in, ", "))}
	case failed != nil: // the thing of a process that cannot be asked may be meant
		return nil, failed
	case one == nil:
		return nil, nothing(fmt.Sprintf("there is no %s %s in %s; its list shows what there is%s", k.noun, id, processes(answers), k.lost))
	}
	one.fields, err = fields(one.Thing)
	return one, err
}

func (f *found) title(k kind, id string) string {
	var parts []string
	for _, name := range k.title {
		for _, field := range f.fields {
			if field.name == name && field.value != nil {
				parts = append(parts, text(field.value))
			}
		}
	}
	return fmt.Sprintf("%s %s of %s (%s)", k.noun, id, f.From, strings.Join(parts, ", order "))
}

type one struct {
	ID      string `arg:""`
	Service string `help:"In this process." placeholder:"NAME"`
}

type outboxShow struct{ one }

// Run shows an event.
func (c outboxShow) Run(a *app) error { return a.show(events, c.ID, c.Service) }

type destinationsShow struct{ one }

// Run shows a destination.
func (c destinationsShow) Run(a *app) error { return a.show(destinations, c.ID, c.Service) }

type incidentsShow struct{ one }

// Run shows an incident.
func (c incidentsShow) Run(a *app) error { return a.show(incidents, c.ID, c.Service) }

func (a *app) show(k kind, id, service string) error {
	f, err := a.find(k, id, service)
	if err != nil {
		return err
	}
	if a.json {
		return printJSON(a.out, f)
	}
	fmt.Fprintln(a.out, f.title(k, id))
	if err := list(a.out, f.fields); err != nil {
		return err
	}
	return a.printAudit(f.Audit)
}

func (a *app) printAudit(acts []json.RawMessage) error {
	if len(acts) == 0 {
		fmt.Fprintln(a.out, "\nNobody has done anything to it.")
		return nil
	}
	rows := make([]row, len(acts))
	for i, act := range acts {
		if err := decode(act, &rows[i]); err != nil {
			return err
		}
	}
	fmt.Fprintln(a.out)
	return table(a.out, []string{"at", "actor", "verb", "reason", "detail"}, rows)
}

type lettersShow struct {
	one
	Contents bool   `help:"Show key, headers and payload as received. They may hold personal data; the service records who saw them and why."`
	Reason   string `help:"Why, with --contents." placeholder:"TEXT"`
	By       string `help:"Who, with --contents; default: the user of this system." placeholder:"PERSON"`
}

// Validate is called by kong.
func (c lettersShow) Validate() error {
	if c.Contents && c.Reason == "" {
		return errors.New("--contents needs --reason: the service records who saw personal data and why")
	}
	return nil
}

// Run shows a letter, or with --contents its bytes.
func (c lettersShow) Run(a *app) error {
	if !c.Contents {
		return a.show(letters, c.ID, c.Service)
	}
	who, err := person(c.By, c.Reason)
	if err != nil {
		return err
	}
	f, err := a.find(letters, c.ID, c.Service)
	if err != nil {
		return err
	}
	var answer struct {
		Contents inbox.Contents `json:"contents"`
	}
	if err := f.process.PostJSON(a, letters.path+"/"+c.ID+"/contents", who, &answer); err != nil {
		return a.fleet.Explain(f.process, err)
	}
	if a.json {
		return printJSON(a.out, answer.Contents)
	}
	fmt.Fprintf(a.out, "%s\n  key      %s\n", f.title(letters, c.ID), readable(answer.Contents.Key))
	for _, h := range answer.Contents.Headers {
		fmt.Fprintf(a.out, "  header   %s: %s\n", readable([]byte(h.Key)), readable(h.Value))
	}
	fmt.Fprintf(a.out, "  payload  %s\n", readable(answer.Contents.Payload))
	return nil
}

// readable shows bytes as text where they are text.
func readable(b []byte) string {
	switch {
	case b == nil:
		return "(none)"
	case !utf8.Valid(b):
		return fmt.Sprintf("%q", b)
	}
	return text(string(b))
}
