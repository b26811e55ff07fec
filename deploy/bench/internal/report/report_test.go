package report

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func example() *Report {
	round := func(l *Line, seconds float64, violations int) {
		l.Add(Round{Elapsed: time.Duration(seconds * float64(time.Second)), Records: l.Rows, Distinct: l.Rows, Violations: violations})
	}
	ours := &Line{Name: "ours", Label: "ours", Design: "ours", Rows: 1000}
	naive := &Line{Name: "naive", Label: "<naive> & slow", Design: "naive", Rows: 1000}
	limit := &Line{Name: "limit", Label: "limit", Design: "limit", Rows: 1000, Silent: true}
	for i, slowness := range []float64{1, 10, 1.2} { // the machine is busy in the second round
		round(ours, 0.1*slowness, 0)
		round(naive, 0.5*slowness, i)
		round(limit, 0.05*slowness, 0)
	}
	idle := &Idle{Name: "ours", Label: "ours"}
	idle.Add([]time.Duration{3 * time.Millisecond, 1 * time.Millisecond})
	idle.Add([]time.Duration{2 * time.Millisecond})
	r := &Report{Cases: []*Case{{Name: "base", Title: "base", Lines: []*Line{naive, ours, limit}}}, Idle: []*Idle{idle}}
	r.Reckon()
	return r
}

func TestRatiosAreTakenWithinARoundAndWhatWasNotMeasuredIsNull(t *testing.T) {
	t.Parallel()
	last, err := example().LastLine()
	require.NoError(t, err)
	require.JSONEq(t, `{"ratios": {"naive_0ms": 5, "naive_5ms": null, "limit_0ms": 0.5, "million": null, "best_go_outbox": null}}`, last)
}

func TestMedianAndSpreadComeFromTheRounds(t *testing.T) {
	t.Parallel()
	r := example()
	ours := r.Cases[0].line("ours")
	require.InDelta(t, 8333, ours.Median, 1)
	require.InDelta(t, 1000, ours.Min, 1)
	require.InDelta(t, 10000, ours.Max, 1)
	require.InDelta(t, 2, r.Idle[0].P50, 0.001)
	require.Equal(t, 3, r.Idle[0].Samples)
}

func TestMissingAndDoubledEventsAreShown(t *testing.T) {
	t.Parallel()
	for _, distinct := range []int{999, 1000} {
		l := &Line{Rows: 1000}
		l.Add(Round{Elapsed: time.Second, Records: 1001, Distinct: distinct})
		require.False(t, l.Complete())
	}
	var table strings.Builder
	require.NoError(t, example().Table(&table))
	require.Contains(t, table.String(), "all, once")
	require.Contains(t, table.String(), "0/1/2", "the rounds' violations differ, so all are shown")
}

func TestTheChartIsWellFormed(t *testing.T) {
	t.Parallel()
	d := xml.NewDecoder(strings.NewReader(example().Chart()))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}
