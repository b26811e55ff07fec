package elastictest

import "testing"

func TestTheStandInKeepsTheContract(t *testing.T) {
	t.Parallel()
	_, url := Start(t)
	Contract(t, url)
}
