package kafkatest

import (
	"testing"

	"example.com/paycast/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// inProcess has no other end than a sudden one.
type inProcess struct{ *testkit.Broker }

func (b inProcess) Stop() { b.Kill() }

func TestTheEmbeddedBrokerKeepsTheContract(t *testing.T) {
	t.Parallel()
	Contract(t, inProcess{testkit.Kafka(t)})
}
