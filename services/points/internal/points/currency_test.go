package points

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnePointPerMajorUnitRoundedDown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		amount   int64
		currency string
		points   int64
	}{
		{1999, "EUR", 19}, {99, "USD", 0}, {100, "CNY", 1}, {500, "JPY", 500}, {1999, "KWD", 1}, {12345, "CLF", 1}, {2500, "IQD", 2},
	} {
		n, err := pointsFor(c.amount, c.currency)
		require.NoError(t, err)
		require.Equal(t, c.points, n, "%d %s", c.amount, c.currency)
	}
	for _, bad := range []string{"", "eur", "EUX", "XXX", "XAU", "EURO", "€"} {
		_, err := pointsFor(100, bad)
		require.ErrorIs(t, err, errCurrency, bad)
	}
}
