//go:build verify

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestACopyTakesPartInTheDemo: the story's events reach the copy, and the reconciler counts them there.
func TestACopyTakesPartInTheDemo(t *testing.T) {
	root := tree(t)
	run(t, root, "make", "new-service", "NAME=coupon", "EVENT=PaymentSucceeded")
	run(t, root, "make", "new-service", "NAME=welcome", "EVENT=OrderCreated")
	out := run(t, root, "make", "demo")
	require.True(t, strings.HasSuffix(strings.TrimSpace(out), "agree"), out)
	require.Regexp(t, `checked .*coupon`, out)
	require.Regexp(t, `checked .*welcome`, out)
}
