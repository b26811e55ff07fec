// Command notify tells customers by text message what became of their payments. It is two processes of one binary: the
// consumer writes commands, the sender carries them out at the SMS provider's pace and never keeps an event waiting.
package main

import (
	"example.com/paycast/services/notify/internal/notify"
	"example.com/paycast/shared/service"
)

func main() {
	service.Main("notify",
		service.Command{Name: "serve", Help: "turn events into commands and show them at HTTP_ADDR", Run: notify.Serve},
		service.Command{Name: "send", Help: "send what is due to the SMS provider at SMS_URL", Run: notify.Send},
		service.Command{Name: "migrate", Help: "bring the database at DATABASE_URL up to date", Run: notify.Migrate},
	)
}
