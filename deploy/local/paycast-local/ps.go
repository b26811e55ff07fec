package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"example.com/paycast/deploy/local/internal/supervise"
)

type psCommand struct {
	directory
	JSON bool `help:"As JSON."`
}

// Run shows what the stack says that runs on the directory.
func (c psCommand) Run(ctx context.Context) error {
	all, err := supervise.Client{Dir: c.Dir}.Statuses(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(all)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NAME\tPID\tPORTS\tSTATE\tNOTE")
	for _, s := range all {
		pid := "-"
		if s.PID != 0 {
			pid = fmt.Sprint(s.PID)
		}
		state := string(s.State)
		if s.State == supervise.Running && !s.Ready {
			state = "running, not ready"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", s.Name, pid, strings.Trim(fmt.Sprint(s.Ports), "[]"), state, strings.TrimSpace(s.Note))
	}
	return table.Flush()
}
