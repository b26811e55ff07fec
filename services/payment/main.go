// Command payment is the producer of paycast's events: an API that takes orders and the provider's callbacks, and a
// relay that carries what the API committed to Kafka. They are two processes of one binary, so that a slow or dead
// broker never slows a callback.
package main

import (
	"example.com/paycast/services/payment/internal/payment"
	"example.com/paycast/shared/service"
)

func main() {
	service.Main("payment",
		service.Command{Name: "api", Help: "serve orders and callbacks at HTTP_ADDR", Run: payment.API},
		service.Command{Name: "relay", Help: "publish committed events to KAFKA_BROKERS", Run: payment.Relay},
		service.Command{Name: "migrate", Help: "bring the database at DATABASE_URL up to date", Run: payment.Migrate},
		service.Command{Name: "archive", Help: "move sent events and receipts older than ARCHIVE_AFTER into their archives, then end; a relay with ARCHIVE_AFTER does it hourly", Run: payment.Archive},
	)
}
