package main

import "context"

type demoCommand struct {
	stackFlags
	JSON bool `help:"Tell the story as JSON lines."`
}

// Run is not written yet.
func (c demoCommand) Run(ctx context.Context) error { return nil }
