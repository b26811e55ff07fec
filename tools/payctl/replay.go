package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/replay"
	"example.com/paycast/tools/payctl/internal/fleet"
)

const replaysPath = "/ops/replays"

// said is who and why, for what changes no message and so needs no --yes.
type said struct {
	Reason string `help:"Why; it stays in the service's audit." required:"" placeholder:"TEXT"`
	By     string `help:"Who; default: the user of this system." placeholder:"PERSON"`
}

type replayPlan struct {
	said
	Service string   `help:"Of this consumer." required:"" placeholder:"NAME"`
	Letter  []int64  `help:"These dead letters." placeholder:"ID"`
	Class   *string  `help:"Dead letters of this error class, one of ${enum}." enum:"transient,waiting,bad_data,refused,panic,crashes_consumer,conflict,undecodable" placeholder:"CLASS"`
	Code    string   `help:"Dead letters with this error code." placeholder:"CODE"`
	Type    string   `help:"Events of this type." placeholder:"TYPE"`
	From    moment   `help:"What the group got first at this time or later (RFC 3339)." placeholder:"TIME"`
	To      moment   `help:"What the group got first before this time." placeholder:"TIME"`
	Order   []string `help:"Of these orders." placeholder:"NO"`
	Event   []string `help:"These events; those that the group has not seen come from payment." placeholder:"ID"`
	Rate    int      `help:"Messages a second, after the canary." default:"50" placeholder:"N"`
}

// moment is a point in time as people type it; nil when it is not given.
type moment struct{ at *time.Time }

// UnmarshalText is called by kong.
func (m *moment) UnmarshalText(typed []byte) error {
	at, err := time.Parse(time.RFC3339, string(typed))
	if err != nil {
		return fmt.Errorf("%q is not a time after RFC 3339, such as 2026-03-01T12:00:00Z", typed)
	}
	m.at = &at
	return nil
}

// Run freezes a selection and shows what each message would do.
func (c replayPlan) Run(a *app) error {
	who, err := person(c.By, c.Reason)
	if err != nil {
		return err
	}
	p, err := a.fleet.Only(c.Service)
	if err != nil {
		return usage{err}
	}
	s := replay.Selection{Letters: c.Letter, Class: chosen(c.Class), Code: c.Code, EventType: c.Type, From: c.From.at, To: c.To.at, OrderNos: c.Order, EventIDs: c.Event}
	asked := struct {
		audit.By
		Selection replay.Selection `json:"selection"`
		Rate      int              `json:"rate"`
	}{who, s, c.Rate}
	var job replay.Job
	if err := p.Processes[0].PostJSON(a, replaysPath, asked, &job); err != nil {
		return a.fleet.Explain(p.Processes[0], err)
	}
	if a.json {
		return printJSON(a.out, job)
	}
	fmt.Fprintf(a.out, "planned replay %s of %s: %d messages are frozen, hash %.12s; nothing has been handled\n", job.JobID, c.Service, job.Items, job.IDsHash)
	fmt.Fprintf(a.out, "  expected  %s\n  to do     %d\n", counts(job.Forecasts), job.States["PENDING"])
	if job.People > 0 {
		fmt.Fprintf(a.out, "  people    %d of them may reach somebody; a run needs --people %d\n", job.People, job.People)
	}
	return nil
}

// rehearsalTimeout is more than a service takes for an answer.
const rehearsalTimeout = 30 * time.Second

type replayRehearse struct {
	said
	ID string `arg:""`
}

// Run lets the service handle what is pending and roll it back.
func (c replayRehearse) Run(a *app) error {
	who, err := person(c.By, c.Reason)
	if err != nil {
		return err
	}
	p, _, err := a.findReplay(c.ID)
	if err != nil {
		return err
	}
	patient := *p.HTTP
	patient.Timeout = max(patient.Timeout, rehearsalTimeout)
	p.HTTP = &patient
	var told replay.Rehearsal
	if err := p.PostJSON(a, replaysPath+"/"+url.PathEscape(c.ID)+"/rehearse", who, &told); err != nil {
		return a.fleet.Explain(p, err)
	}
	var failed error
	switch {
	case told.Refused != "":
		failed = errors.New(told.Refused)
	case len(told.Failures) > 0:
		failed = errors.New("some of them would be dead letters again")
	}
	if a.json {
		return errors.Join(failed, printJSON(a.out, told))
	}
	if told.Refused != "" {
		fmt.Fprintf(a.out, "nothing is rehearsed; the consume log makes expect of %d messages: %s\n", told.Pending, counts(told.Results))
		return failed
	}
	fmt.Fprintf(a.out, "rehearsed %d of %d messages, each in a transaction that was rolled back: %s\n", told.Rehearsed, told.Pending, counts(told.Results))
	for _, f := range told.Failures {
		fmt.Fprintf(a.out, "  %d  order %s  event %s  %s: %s\n", f.Position, text(f.OrderNo), f.EventID, f.Class, text(f.Text))
	}
	return failed
}

type replayVerb struct {
	act
	ID string `arg:""`
}

// start is a verb after which messages are handled.
type start struct {
	replayVerb
	People int64 `help:"The second confirmation, where people would receive something: how many, as the plan says." placeholder:"N"`
	Detach bool  `help:"Do not wait for the end."`
}

type replayRun struct{ start }

// Run starts a planned replay and shows its progress.
func (c replayRun) Run(a *app) error { return a.start("run", c.start) }

type replayResume struct{ start }

// Run goes on with a paused replay, with one message first.
func (c replayResume) Run(a *app) error { return a.start("resume", c.start) }

type replayPause struct{ replayVerb }

// Run stops a replay for a while.
func (c replayPause) Run(a *app) error {
	_, err := a.decide("pause", c.replayVerb, 0)
	return err
}

type replayCancel struct{ replayVerb }

// Run ends a replay; what has not begun stays as it is.
func (c replayCancel) Run(a *app) error {
	_, err := a.decide("cancel", c.replayVerb, 0)
	return err
}

type replayStatus struct {
	ID string `arg:"" optional:"" help:"One replay with its audit; all of all services without it."`
}

// Run shows replays.
func (c replayStatus) Run(a *app) error {
	if c.ID == "" {
		return a.list(filter{Limit: pageSize}, listing{
			what: "replays", path: replaysPath, key: "replays", whole: true,
			columns: []string{"service", "job_id", "state", "stage", "items", "results", "cause", "planned_by", "reason", "created_at"},
		})
	}
	_, told, err := a.findReplay(c.ID)
	if err != nil {
		return err
	}
	if a.json {
		return printJSON(a.out, told)
	}
	fmt.Fprintln(a.out, bar(told.Replay))
	if told.Replay.Cause != nil {
		fmt.Fprintln(a.out, "  cause    ", text(*told.Replay.Cause))
	}
	fmt.Fprintln(a.out, "  selection", text(string(told.Replay.Selection)))
	return a.printAudit(told.Audit)
}

// told is one replay as its service tells it.
type told struct {
	Replay replay.Job        `json:"replay"`
	Audit  []json.RawMessage `json:"audit"`
}

// findReplay takes the first process that knows the id: ids are random, and the processes of a group share a database.
func (a *app) findReplay(id string) (fleet.Process, told, error) {
	var failed error
	answers := a.fleet.Ask(a, replaysPath+"/"+url.PathEscape(id), nil)
	for _, answer := range answers {
		var t told
		switch {
		case answer.Err == nil:
			return answer.From, t, json.Unmarshal(answer.JSON, &t)
		case !fleet.NotFound(answer.Err):
			failed = errors.Join(failed, a.fleet.Explain(answer.From, answer.Err))
		}
	}
	if failed == nil {
		failed = nothing(fmt.Sprintf("there is no replay %s in %s; payctl replay status lists them", id, processes(answers)))
	}
	return fleet.Process{}, told{}, failed
}

func (a *app) decide(verb string, c replayVerb, people int64) (fleet.Process, error) {
	who, err := person(c.By, c.Reason)
	if err != nil {
		return fleet.Process{}, err
	}
	p, before, err := a.findReplay(c.ID)
	if err != nil {
		return p, err
	}
	asked := struct {
		audit.By
		replay.Confirmation
	}{who, replay.Confirmation{People: people}}
	var after replay.Job
	if err := p.PostJSON(a, c.path(replaysPath+"/"+url.PathEscape(c.ID)+"/"+verb), asked, &after); err != nil {
		return p, a.fleet.Explain(p, err)
	}
	if a.json {
		return p, printJSON(a.out, after)
	}
	mode := "would " + verb
	if c.Yes {
		mode = "done: " + verb
	}
	fmt.Fprintf(a.out, "%s replay %s of %s, by %s: %s\n  state  %s → %s\n  to do  %d of %d\n", mode, c.ID, p.Name, text(who.Actor), text(who.Reason),
		before.Replay.State, after.State, after.States["PENDING"], after.Items)
	if after.People > 0 && !c.Yes {
		fmt.Fprintf(a.out, "  people %d may receive something: confirm with --people %d\n", after.People, after.People)
	}
	if !c.Yes {
		fmt.Fprintln(a.out, nothingChanged)
	}
	return p, nil
}

func (a *app) start(verb string, c start) error {
	p, err := a.decide(verb, c.replayVerb, c.People)
	if err != nil || !c.Yes || c.Detach {
		return err
	}
	return a.follow(p, c.ID)
}
