package testkit

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is longer than Kafka's client waits for an answer on a slow machine; a loop that leaks waits for ever.
const patience = time.Minute

// Main runs the tests of a package and then fails it when goroutines are left: a loop that outlives its test would
// outlive its service's shutdown as well. Use it as
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
func Main(m *testing.M) {
	code := m.Run()
	if server := server.Load(); server != nil {
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	if code == 0 { // a test that failed may have left anything behind
		http.DefaultClient.CloseIdleConnections()
		// The thread that starts processes lives as long as we do, and so does the one clock of sarama's metrics.
		options := []goleak.Option{
			goleak.IgnoreTopFunction("example.com/paycast/shared/embedded.startLoop"),
			goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
			// An open circuit breaker of sarama sleeps its ten seconds out, also after the client is closed.
			goleak.IgnoreAnyFunction("github.com/eapache/go-resiliency/breaker.(*Breaker).timer"),
			// A connection that Link.Cut breaks with a chunk inside leaves toxiproxy's goroutine waiting to pass it on.
			goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
		}
		// A question to Kafka whose asker has given up ends by its own time-outs; sarama knows no other end.
		err := goleak.Find(options...)
		for begun := time.Now(); err != nil && time.Since(begun) < patience; {
			err = goleak.Find(options...)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left after the tests:", err)
			code = 1
		}
	}
	if lifeline != nil {
		_ = lifeline.Close() // the watcher begins to remove our files
	}
	os.Exit(code)
}
