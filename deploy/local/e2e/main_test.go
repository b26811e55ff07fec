package e2e

import (
	"testing"

	"example.com/paycast/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
