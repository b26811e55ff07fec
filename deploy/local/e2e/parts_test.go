//go:build !real

package e2e

import "time"

// parts are the flags of every system; patience bounds how long one may take to recover; loadOrders are paid while
// processes die.
var parts []string

const (
	patience   = 5 * time.Minute
	loadOrders = 200
)
