//go:build real

package e2e

import "time"

// With the tag real the same tests run on Apache Kafka and Elasticsearch themselves, which take longer to come back.
var parts = []string{"--kafka", "real", "--search", "real"}

const (
	patience   = 8 * time.Minute
	loadOrders = 500
)
