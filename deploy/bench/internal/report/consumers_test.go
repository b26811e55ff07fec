package report

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func consumers() *Consumers {
	line := func(name string, rates ...float64) *ConsumerLine {
		l := &ConsumerLine{Name: name, Label: name, Rows: 1000}
		for _, rate := range rates {
			l.Add(1000, time.Duration(1000/rate*float64(time.Second)), 0, 0, 0)
		}
		return l
	}
	r := &Consumers{Cases: []*ConsumerCase{
		{Name: "eight", Title: "eight", Lines: []*ConsumerLine{line("lean", 100, 10, 100), line("together", 1000, 200, 1000)}},
		{Name: "slow", Title: "slow", OneIn: 1000, Lines: []*ConsumerLine{line("lean", 50, 50, 50), line("together", 800, 800, 800)}},
	}}
	r.Reckon()
	return r
}

func TestTheConsumersRatiosAreTakenWithinARound(t *testing.T) {
	t.Parallel()
	last, err := consumers().LastLine()
	require.NoError(t, err)
	require.JSONEq(t, `{"ratios": {"one_partition": null, "eight_partitions_batch": 10}}`, last)
}

func TestWhatATroubledEventCostsIsTheDelayOfAll(t *testing.T) {
	t.Parallel()
	r := consumers()
	require.Nil(t, r.line("eight", "lean").Cost)
	require.InDelta(t, 10_000, *r.line("slow", "lean").Cost, 0.1, "a thousand events take 20 s instead of 10 s")
	require.InDelta(t, 250, *r.line("slow", "together").Cost, 0.1)
	var table strings.Builder
	require.NoError(t, r.Table(&table))
	require.Contains(t, table.String(), "250.0 ms")
}
