package event

import "golang.org/x/text/currency"

// exponents are the ISO 4217 currencies whose minor unit is not a hundredth. x/text knows which currencies exist, but
// its digits are those that people write, which differ from ISO 4217 for some.
var exponents = map[string]int{
	"BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0, "RWF": 0, "UGX": 0,
	"UYI": 0, "VND": 0, "VUV": 0, "XAF": 0, "XOF": 0, "XPF": 0,
	"BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,
	"CLF": 4, "UYW": 4,
}

// unitless codes are in ISO 4217 and have no minor unit: metals, accounting units, the code for tests.
var unitless = map[string]bool{
	"XAG": true, "XAU": true, "XPD": true, "XPT": true, "XBA": true, "XBB": true, "XBC": true, "XBD": true,
	"XDR": true, "XSU": true, "XUA": true, "XTS": true, "XXX": true,
}

// Exponent is the number of decimal digits of the currency's minor unit, in which amounts are. A code without one can be
// the currency of no order: who takes orders refuses it, and who computes with their amounts need not fear it.
func Exponent(code string) (digits int, ok bool) {
	if unit, err := currency.ParseISO(code); err != nil || unit.String() != code || unitless[code] {
		return 0, false
	}
	digits, listed := exponents[code]
	if !listed {
		digits = 2
	}
	return digits, true
}
