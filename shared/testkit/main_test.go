package testkit

import (
	"fmt"
	"os"
	"testing"
)

// The test binary also plays one that is killed in the middle of its tests.
const childEnv = "TESTKIT_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		Main(m)
	}
	dir, err := scratch()
	if err == nil {
		_, err = sharedServer()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(dir)
	select {}
}

// failing is a testing.TB whose failure is an outcome that a test can look at.
type failing struct {
	testing.TB
	message string
}

type failed struct{}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	panic(failed{})
}

// failure returns the message with which fn fails its test, or "".
func failure(t *testing.T, fn func(t testing.TB)) (message string) {
	f := &failing{TB: t}
	defer func() {
		if r := recover(); r != nil {
			if _, expected := r.(failed); !expected {
				panic(r)
			}
			message = f.message
		}
	}()
	fn(f)
	return ""
}
