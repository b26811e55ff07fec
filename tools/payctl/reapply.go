package main

import (
	"fmt"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/replay"
)

type reapplyCommand struct {
	act
	Event   string `arg:"" help:"The event whose effect was lost."`
	Service string `help:"In this consumer." required:"" placeholder:"NAME"`
	People  int64  `help:"The second confirmation, where people would receive something." placeholder:"1"`
}

// Run applies an event again although the log says that it was applied.
func (c reapplyCommand) Run(a *app) error {
	who, err := person(c.By, c.Reason)
	if err != nil {
		return err
	}
	p, err := a.fleet.Only(c.Service)
	if err != nil {
		return usage{err}
	}
	asked := struct {
		audit.By
		replay.Confirmation
		EventID string `json:"event_id"`
	}{who, replay.Confirmation{People: c.People}, c.Event}
	var done replay.Reapplied
	if err := p.Processes[0].PostJSON(a, c.path("/ops/reapply"), asked, &done); err != nil {
		return a.fleet.Explain(p.Processes[0], err)
	}
	if a.json {
		return printJSON(a.out, done)
	}
	mode := "would reapply"
	if c.Yes {
		mode = "done: reapply"
	}
	fmt.Fprintf(a.out, "%s %s of order %s in %s, by %s: %s\n  status  SUCCESS → %s\n", mode, done.EventType, text(done.OrderNo), c.Service, text(who.Actor), text(who.Reason), done.Status)
	if !c.Yes {
		fmt.Fprintln(a.out, nothingChanged)
	}
	return nil
}
