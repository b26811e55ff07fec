package ask

import (
	"context"
	"fmt"
	"strings"
)

// Run is a reconciliation.
type Run struct {
	ID       string         `json:"id"`
	Status   string         `json:"status"`
	Error    string         `json:"error"`
	Checked  map[string]any `json:"checked"`
	Findings []Finding      `json:"findings"`
}

// Finding is one thing that does not agree.
type Finding struct {
	Kind    string `json:"kind"`
	Group   string `json:"group"`
	OrderNo string `json:"order_no"`
	Detail  string `json:"detail"`
}

func (f Finding) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s, order %s: %s", f.Kind, f.Group, f.OrderNo, f.Detail))
}

// StartRun begins a reconciliation and returns its id.
func (a *Asker) StartRun(ctx context.Context) (id string, err error) {
	var begun Run
	if err := a.api("RECONCILE").PostJSON(ctx, "/runs", nil, &begun); err != nil {
		return "", fmt.Errorf("reconcile: starting a run: %w", err)
	}
	return begun.ID, nil
}

// Run reads a reconciliation; its status is "running" until it has ended.
func (a *Asker) Run(ctx context.Context, id string) (r Run, err error) {
	err = a.api("RECONCILE").GetJSON(ctx, "/runs/"+id, nil, &r)
	return r, err
}
