package event_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
)

func TestACurrencyHasTheMinorUnitOfISO4217OrIsNone(t *testing.T) {
	t.Parallel()
	for code, digits := range map[string]int{"EUR": 2, "CNY": 2, "JPY": 0, "XOF": 0, "KWD": 3, "IQD": 3, "CLF": 4} {
		n, ok := event.Exponent(code)
		require.True(t, ok, code)
		require.Equal(t, digits, n, code)
	}
	for _, bad := range []string{"", "eur", "EUX", "EURO", "€", "XXX", "XTS", "XAU", "XDR"} {
		_, ok := event.Exponent(bad)
		require.False(t, ok, bad)
	}
}
