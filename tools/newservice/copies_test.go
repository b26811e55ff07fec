//go:build template || verify

package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTwoCopiesBuildAndPassTheirTestsAndTheConformanceSuite takes minutes, so it is a step of its own: make test-template.
func TestTwoCopiesBuildAndPassTheirTestsAndTheConformanceSuite(t *testing.T) {
	t.Parallel()
	root := tree(t)
	require.NoError(t, create(io.Discard, root, "coupon", "PaymentSucceeded"))
	require.NoError(t, create(io.Discard, root, "welcome", "OrderCreated"))
	run(t, root, "go", "vet", "./services/coupon/...", "./services/welcome/...")
	require.Empty(t, run(t, root, "gofmt", "-l", "services", "docs"))
	for _, name := range []string{"coupon", "welcome"} {
		run(t, filepath.Join(root, "services", name), "env", "GOWORK=off", "go", "build", "-o", os.DevNull, ".")
	}
	run(t, root, "go", "test", "-p", "1", "./docs/check", "./services/coupon/...", "./services/welcome/...")
}
