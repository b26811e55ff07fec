package report

import (
	"encoding/json"
	"math"
	"slices"
	"time"
)

// Report is everything that one run of the benchmark has found.
type Report struct {
	At      time.Time `json:"at"`
	Quick   bool      `json:"quick"`
	Machine Machine   `json:"machine"`
	Cases   []*Case   `json:"cases"`
	Idle    []*Idle   `json:"idle,omitempty"`
	Ratios  Ratios    `json:"ratios"`
}

// Machine is where it ran.
type Machine struct {
	OS       string            `json:"os"`
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	MemoryMB int               `json:"memory_mb"`
	Load     string            `json:"load_average"` // when the run began: what else was going on
	Go       string            `json:"go"`
	Postgres string            `json:"postgres"`
	Buffers  string            `json:"shared_buffers"` // of Postgres
	Modules  map[string]string `json:"modules"`
}

// Case is a comparison: the same in everything but what its lines name.
type Case struct {
	Name  string  `json:"name"`
	Title string  `json:"title"`
	Lines []*Line `json:"lines"`
}

// Line is one design in one case, over all rounds.
type Line struct {
	Name       string    `json:"name"` // unique in its case
	Label      string    `json:"label"`
	Design     string    `json:"design"`
	Rows       int       `json:"rows"`
	Keys       int       `json:"keys"`
	DelayMS    int       `json:"produce_delay_ms"`
	Relays     int       `json:"relays"`
	Kafka      string    `json:"kafka"`
	Rates      []float64 `json:"rows_per_second"` // by round
	Median     float64   `json:"median"`
	Min        float64   `json:"min"`
	Max        float64   `json:"max"`
	Records    []int     `json:"records"`  // read back, by round
	Distinct   []int     `json:"distinct"` // events among them, by round
	Violations []int     `json:"order_violations"`
	BrokenKeys []int     `json:"keys_out_of_order"`
	Silent     bool      `json:"sends_nothing,omitempty"`
	PeakRSSMB  float64   `json:"peak_rss_mb"` // largest of all rounds; per relay process
	CPU        CPU       `json:"cpu_us_per_row"`

	cpus [3][]float64 // by round
}

// CPU is processor time per row in microseconds, the median of the rounds. It depends less than a rate does on what else
// the machine is doing. A Kafka from outside is not seen.
type CPU struct {
	Relays   float64 `json:"relays"`
	Postgres float64 `json:"postgres"`
	Kafka    float64 `json:"kafka"`
}

// Round is the outcome of one drain of a line.
type Round struct {
	Elapsed                                      time.Duration
	CPU                                          [3]time.Duration // of relays, PostgreSQL, Kafka
	Records, Distinct, Violations, Keys, PeakRSS int
}

// Add takes one round into the line.
func (l *Line) Add(r Round) {
	l.Rates = append(l.Rates, round1(float64(l.Rows)/r.Elapsed.Seconds()))
	l.Median, l.Min, l.Max = median(l.Rates), slices.Min(l.Rates), slices.Max(l.Rates)
	if !l.Silent {
		l.Records, l.Distinct = append(l.Records, r.Records), append(l.Distinct, r.Distinct)
		l.Violations, l.BrokenKeys = append(l.Violations, r.Violations), append(l.BrokenKeys, r.Keys)
	}
	l.PeakRSSMB = max(l.PeakRSSMB, round1(float64(r.PeakRSS)/(1<<20)))
	for i, c := range r.CPU {
		l.cpus[i] = append(l.cpus[i], float64(c.Microseconds())/float64(l.Rows))
	}
	l.CPU = CPU{round1(median(l.cpus[0])), round1(median(l.cpus[1])), round1(median(l.cpus[2]))}
}

// Complete says that each round brought every event exactly once.
func (l *Line) Complete() bool {
	for i := range l.Records {
		if l.Records[i] != l.Rows || l.Distinct[i] != l.Rows {
			return false
		}
	}
	return true
}

// Idle is the time from a commit until a consumer has the record.
type Idle struct {
	Name    string  `json:"name"`
	Label   string  `json:"label"`
	Samples int     `json:"samples"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Max     float64 `json:"max_ms"`
	took    []time.Duration
}

// Add takes the samples of one round into it.
func (i *Idle) Add(took []time.Duration) {
	i.took = append(i.took, took...)
	slices.Sort(i.took)
	at := func(q float64) float64 {
		return float64(i.took[int(q*float64(len(i.took)-1))].Microseconds()) / 1000
	}
	i.Samples, i.P50, i.P99, i.Max = len(i.took), at(0.5), at(0.99), at(1)
}

// Ratios are ours against others; null is what was not measured.
type Ratios struct {
	Naive0ms     *float64 `json:"naive_0ms"`      // against the naive relay
	Naive5ms     *float64 `json:"naive_5ms"`      // the same, when each produce takes 5 ms
	Limit0ms     *float64 `json:"limit_0ms"`      // against what the database alone can do
	Million      *float64 `json:"million"`        // a million rows against twenty thousand
	BestGoOutbox *float64 `json:"best_go_outbox"` // against the claimed batch in chunks
	NaiveReal    *float64 `json:"naive_real,omitempty"`
}

// Reckon fills the ratios from the cases.
func (r *Report) Reckon() {
	r.Ratios = Ratios{
		Naive0ms:     r.against("base", "naive"),
		Naive5ms:     r.against("slow", "naive"),
		Limit0ms:     r.against("base", "limit"),
		Million:      r.against("million", "small"),
		BestGoOutbox: r.against("base", "chunks"),
		NaiveReal:    r.against("real", "naive"),
	}
}

// against is the line "ours" of a case over another line of it.
func (r *Report) against(name, other string) *float64 {
	for _, c := range r.Cases {
		if c.Name != name {
			continue
		}
		a, b := c.line("ours"), c.line(other)
		if a == nil || b == nil {
			return nil
		}
		var each []float64
		for i := range min(len(a.Rates), len(b.Rates)) {
			each = append(each, a.Rates[i]/b.Rates[i])
		}
		m := math.Round(median(each)*1000) / 1000
		return &m
	}
	return nil
}

func (c *Case) line(name string) *Line {
	for _, l := range c.Lines {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// LastLine is what the program prints last.
func (r *Report) LastLine() (string, error) {
	b, err := json.Marshal(map[string]Ratios{"ratios": r.Ratios})
	return string(b), err
}

func round1(x float64) float64 { return math.Round(x*10) / 10 }

func median(xs []float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	n := len(s)
	if n == 0 {
		return 0
	}
	return (s[(n-1)/2] + s[n/2]) / 2
}
