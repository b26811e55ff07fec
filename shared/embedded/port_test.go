package embedded

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAClaimedPortIsNobodyElsesUntilItIsGivenBack(t *testing.T) {
	t.Parallel()
	port, claim, err := ClaimFreePort()
	require.NoError(t, err)
	_, err = ClaimPort(port)
	require.ErrorContains(t, err, "claimed already")
	startChild(t, "claim "+strconv.Itoa(port))
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	require.NoError(t, err, "a claim does not stand in the way of its user")
	require.NoError(t, claim.Close())

	require.EventuallyWithT(t, func(t *assert.CollectT) { // a child that starts now keeps the claim a moment more
		_, err := ClaimPort(port)
		assert.ErrorContains(t, err, "somebody listens")
	}, soon, 20*time.Millisecond)
	require.NoError(t, l.Close())
}
