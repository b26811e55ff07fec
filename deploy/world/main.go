// Command world is everything outside the system: a payment provider, an SMS provider and customers.
package main

import (
	"example.com/paycast/deploy/world/internal/world"
	"example.com/paycast/shared/service"
)

func main() {
	service.Main("world",
		service.Command{Name: "serve", Help: "payment provider (POST /pay) and SMS provider (/sms, /messages, /mode)", Run: world.Serve},
		service.Command{Name: "load", Help: "make and pay orders at a rate, then stop; the journal goes to standard output", Run: world.Load},
	)
}
