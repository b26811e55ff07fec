package reconcile

import "example.com/paycast/shared/facts"

// minorUnits are the ISO 4217 exponents that are not 2. The list is the reconciler's own on purpose: a check that shares
// its arithmetic with what it checks agrees with every mistake in it.
var minorUnits = map[string]int{
	"BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0, "RWF": 0, "UGX": 0, "UYI": 0,
	"VND": 0, "VUV": 0, "XAF": 0, "XOF": 0, "XPF": 0,
	"BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,
	"CLF": 4, "UYW": 4,
}

// pointsFor is one point for each whole major unit of the order's amount.
func pointsFor(o facts.Order) int64 {
	exponent, ok := minorUnits[o.Currency]
	if !ok {
		exponent = 2
	}
	points := o.Amount
	for range exponent {
		points /= 10
	}
	return points
}
