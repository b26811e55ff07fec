package stage

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAVersionOutOfOrderOrInAnotherPartitionIsAViolation(t *testing.T) {
	t.Parallel()
	require.Zero(t, violations([]place{{2, 0, 7}, {1, 0, 3}, {3, 0, 8}}), "places are given in any order")
	require.Equal(t, 1, violations([]place{{1, 0, 5}, {2, 0, 4}, {3, 0, 6}}))
	require.Equal(t, 2, violations([]place{{1, 0, 1}, {2, 1, 2}, {3, 0, 3}}), "nobody knows in which order partitions are read")
	require.Zero(t, violations(nil))
}
