package points

import (
	"errors"

	"example.com/paycast/shared/event"
)

var errCurrency = errors.New("unknown currency")

// pointsFor gives one point per major unit, rounded down. amount is in minor units and positive.
func pointsFor(amount int64, code string) (int64, error) {
	digits, ok := event.Exponent(code)
	if !ok {
		return 0, errCurrency
	}
	for range digits {
		amount /= 10
	}
	return amount, nil
}
