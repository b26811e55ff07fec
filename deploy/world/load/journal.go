package load

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Verdict is what the outside knows of a request.
type Verdict string

// The verdicts. The zero value means that the request was never made.
const (
	Success Verdict = "success" // acknowledged: it must be there
	Fail    Verdict = "fail"    // refused: it must not be there
	Unknown Verdict = "unknown" // no answer, or a server's error: wholly there or not at all
)

// Entry is one order in the journal.
type Entry struct {
	Key      string  `json:"key"` // the Idempotency-Key of POST /orders
	OrderNo  string  `json:"order_no"`
	UserID   string  `json:"user_id"`
	TradeNo  string  `json:"trade_no"`
	Amount   int64   `json:"amount"` // minor units
	Currency string  `json:"currency"`
	Copies   int     `json:"copies"` // of the callback
	Created  Verdict `json:"created"`
	Paid     Verdict `json:"paid"`
}

// Journal is what the outside saw of a run.
type Journal struct {
	begin   time.Time
	mu      sync.Mutex
	entries []Entry
	sent    int
	late    time.Duration // how far behind the rate the last start was
}

// Counts sums the journal up. Sent counts orders begun; the verdicts are those of the payment, or of the order when it
// came to no payment.
type Counts struct {
	Sent, Success, Fail, Unknown int
}

func (j *Journal) due(late time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sent++
	j.late = late
}

func (j *Journal) add(e Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, e)
}

// Entries is a copy of all finished entries, in the order in which they finished.
func (j *Journal) Entries() []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

// Counts sums up what is finished so far.
func (j *Journal) Counts() Counts {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := Counts{Sent: j.sent}
	for _, e := range j.entries {
		v := e.Paid
		if v == "" {
			v = e.Created
		}
		switch v {
		case Success:
			c.Success++
		case Fail:
			c.Fail++
		case Unknown:
			c.Unknown++
		}
	}
	return c
}

// Write puts the journal out as JSON lines.
func (j *Journal) Write(w io.Writer) error {
	encoder := json.NewEncoder(w)
	for _, e := range j.Entries() {
		if err := encoder.Encode(e); err != nil {
			return fmt.Errorf("writing the journal: %w", err)
		}
	}
	return nil
}

func (j *Journal) line(orders int) string {
	c := j.Counts()
	took := time.Since(j.begin)
	j.mu.Lock()
	defer j.mu.Unlock()
	return fmt.Sprintf("%6.1fs  sent %d/%d  success %d  fail %d  unknown %d  %.0f/s  behind by %s",
		took.Seconds(), c.Sent, orders, c.Success, c.Fail, c.Unknown, float64(c.Sent)/took.Seconds(), j.late.Round(time.Millisecond))
}
