package facts_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/facts"
)

// Services keep digests beside their copies.
func TestADigestThatWasKeptIsStillThatOfTheSameContents(t *testing.T) {
	t.Parallel()
	madeAt := time.Date(2026, 11, 29, 20, 0, 0, 123456000, time.UTC)
	paidAt := madeAt.Add(100 * time.Second).In(time.FixedZone("elsewhere", 3600))
	contents := facts.Contents{
		OrderNo: "a", UserID: "u-1", Title: "A blue lamp", Amount: 1999, Currency: "EUR", Status: "CANCELED", Version: 3,
		CreatedAt: madeAt, PaidAt: &paidAt,
	}
	require.Equal(t, "1a7e58c567b217f49b25c3ea88152c1ce0640a26cc254b70387bfa7407162e22", contents.Digest())
}
