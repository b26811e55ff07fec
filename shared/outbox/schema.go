package outbox

import (
	"embed"

	"example.com/paycast/shared/postgres"
)

// The states of a row.
const (
	Pending = "PENDING" // committed, never tried
	Sending = "SENDING" // claimed under a lease
	Sent    = "SENT"    // confirmed by Kafka
	Retry   = "RETRY"   // tried, will be tried again
	Dead    = "DEAD"    // will not be tried again until an operator says so
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations create the outbox in the database of the service whose transactions append to it.
var Migrations = postgres.Files("outbox", files)
