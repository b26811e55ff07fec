//go:build verify

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCopiesTakePartInTheDemo: the story's events reach the copies, and the reconciler accounts for each of them there.
func TestCopiesTakePartInTheDemo(t *testing.T) {
	root := tree(t)
	run(t, root, "make", "new-service", "NAME=coupon", "EVENT=PaymentSucceeded")
	run(t, root, "make", "new-service", "NAME=welcome", "EVENT=OrderCreated")
	var said struct {
		Result  string
		Checked struct {
			Events int
			Groups map[string]map[string]int
		}
	}
	for line := range strings.SplitSeq(run(t, root, "make", "demo", "ARGS=--json"), "\n") {
		if strings.HasPrefix(line, "{") {
			require.NoError(t, json.Unmarshal([]byte(line), &said), line)
		}
	}
	require.Equal(t, "agree", said.Result)
	require.NotZero(t, said.Checked.Events)
	for _, group := range []string{"coupon", "welcome"} {
		events := 0
		for _, n := range said.Checked.Groups[group] {
			events += n
		}
		require.Equal(t, said.Checked.Events, events, group)
	}
}
