package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Rule is how long a claim lasts and how long one piece of work under it may take.
type Rule struct {
	Lease    time.Duration // from the claim until others may take over
	Deadline time.Duration // bound of one piece of work, such as one send
	Margin   time.Duration // kept for the settle after the last piece of work
}

// Validate refuses a lease in which not even one piece of work is sure to fit: rows would be taken over from living
// holders as a matter of course.
func (r Rule) Validate() error {
	if r.Deadline <= 0 || r.Margin <= 0 {
		return errors.New("deadline and margin must be positive")
	}
	if need := r.Deadline + r.Margin; r.Lease <= need {
		return fmt.Errorf("lease %v is too short: deadline %v + margin %v = %v, and the lease must be longer", r.Lease, r.Deadline, r.Margin, need)
	}
	return nil
}

// Claiming is the context for a claim's statement. A claim that is under way when ctx ends gets the margin to come to its end:
// broken off it may have been committed, and what it took would wait for the end of the lease. Call done after the claim, and
// give back what it took when ctx has ended.
func (r Rule) Claiming(ctx context.Context) (claiming context.Context, done context.CancelFunc) {
	claiming, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(r.Margin, cancel) })
	return claiming, func() { stop(); cancel() }
}

// Hold is one claim as its holder sees it.
type Hold struct {
	Token string // proof of ownership; a fresh one for each claim
	begun time.Time
	rule  Rule
}

// maxOwner keeps a token within varchar(64): owner, a slash and a UUID.
const maxOwner = 64 - 1 - 36

// Begin starts the clock of a claim. Call it before the claim's statement is sent, so that the holder's lease never
// ends after the database's. owner says in the table who holds the row.
func (r Rule) Begin(owner string) Hold {
	if len(owner) > maxOwner {
		owner = owner[len(owner)-maxOwner:]
	}
	return Hold{Token: owner + "/" + uuid.NewString(), begun: time.Now(), rule: r}
}

// MayBegin reports whether a piece of work begun now will be over, and settled, within the lease.
func (h Hold) MayBegin() bool {
	return time.Since(h.begun) < h.rule.Lease-h.rule.Deadline-h.rule.Margin
}

// Begun is when the claim was sent, or somewhat earlier.
func (h Hold) Begun() time.Time { return h.begun }

// End is when others may take over, or somewhat earlier. After it a settle can only be fenced.
func (h Hold) End() time.Time { return h.begun.Add(h.rule.Lease) }
