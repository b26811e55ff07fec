// Command reconcile asks the source and every consumer group what they know, and says whether they agree.
package main

import (
	"example.com/paycast/services/reconcile/internal/reconcile"
	"example.com/paycast/shared/service"
)

func main() {
	service.Main("reconcile",
		service.Command{Name: "serve", Help: "answer the API and run reconciliations that are asked for", Run: reconcile.Serve},
		service.Command{Name: "once", Help: "run one reconciliation; exit 0 only when all agree", Flags: []string{"--json"}, Run: reconcile.Once},
		service.Command{Name: "migrate", Help: "bring the database up to date", Run: reconcile.Migrate},
	)
}
