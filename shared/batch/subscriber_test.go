package batch_test

import (
	"testing"
	"time"

	"example.com/paycast/shared/batch/batchtest"
	"example.com/paycast/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	within  = 90 * time.Second
	session = 15 * time.Second // nobody here is to be taken for dead, on however slow a machine
)

func TestASubscriberWithAWindowCommitsOnlyWhatIsAckedAndLetsGoAtOnce(t *testing.T) {
	t.Parallel()
	batchtest.Subscriber(t, testkit.Kafka(t))
}
