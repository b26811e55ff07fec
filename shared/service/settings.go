package service

import (
	"context"
	"net/http"
	"time"

	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/settings"
)

// Settings adds to GET /ops/settings what a mechanism of this process runs with. report is called at each request; its
// error is shown to the operator, so it must not hold secrets. Call it before Wait.
func (p *Process) Settings(report func(ctx context.Context, to *settings.Report) error) {
	p.reporters = append(p.reporters, report)
}

func (p *Process) settings(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.started.Load() {
			ops.Problem(w, http.StatusServiceUnavailable, "starting", "the process is starting up; ask again when it is ready")
			return
		}
		report := settings.Report{Process: name}
		for _, add := range p.reporters {
			if err := add(r.Context(), &report); err != nil {
				ops.Problem(w, http.StatusServiceUnavailable, "unavailable", err.Error())
				return
			}
		}
		report.Now = time.Now().UTC()
		ops.WriteJSON(w, http.StatusOK, report)
	})
}
