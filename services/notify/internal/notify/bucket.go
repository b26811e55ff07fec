package notify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/lease"
)

// tokenLife is how long a token may be kept. A sender that was paused with one in its hand must not use it into a
// window that others have filled meanwhile.
const tokenLife = 2 * time.Second

// bucket is the pace that all senders share: a token bucket in one row, on the database's clock. In every window of w
// seconds the provider sees at most rate*w + burst requests, and one more per sender process: the token that each may
// have taken before the window began.
type bucket struct {
	db    *gorm.DB
	rate  float64 // tokens per second
	burst float64 // what the bucket holds
	turn  chan struct{}
}

func newBucket(db *gorm.DB, rate float64, burst int) *bucket {
	return &bucket{db: db, rate: rate, burst: float64(burst), turn: make(chan struct{}, 1)}
}

// takeToken fills the bucket up to now and takes one token, if there is one. A concurrent take waits for the row and
// then sees the other's result, so no token is taken twice. The outer select tells a caller who got none how long one
// takes; it is a hint, read before the update.
const takeToken = `
WITH taken AS (
    UPDATE t_rate_bucket
    SET tokens = least(@burst, tokens + @rate * extract(epoch FROM greatest(interval '0', now() - refilled_at))) - 1,
        refilled_at = greatest(refilled_at, now())
    WHERE name = 'sms'
      AND least(@burst, tokens + @rate * extract(epoch FROM greatest(interval '0', now() - refilled_at))) >= 1
    RETURNING name)
SELECT EXISTS (SELECT FROM taken) AS taken,
    greatest(0, 1 - tokens - @rate * extract(epoch FROM greatest(interval '0', now() - refilled_at))) / @rate AS wait
FROM t_rate_bucket WHERE name = 'sms'`

func (b *bucket) take(ctx context.Context) (taken bool, wait time.Duration, err error) {
	var row struct {
		Taken bool
		Wait  float64 // seconds
	}
	found := b.db.WithContext(ctx).Raw(takeToken, map[string]any{"rate": b.rate, "burst": b.burst}).Scan(&row)
	switch {
	case found.Error != nil:
		return false, 0, fmt.Errorf("taking a token: %w", found.Error)
	case found.RowsAffected == 0:
		return false, 0, errors.New("taking a token: the bucket's row is missing")
	}
	return row.Taken, time.Duration(row.Wait * float64(time.Second)), nil
}

// token is a permission to send one request. Its holder is the only one of this process until it calls done.
type token struct {
	taken time.Time
	done  func() // once the request is on its way, or never will be; may be called again
}

// errNoToken: none can be had while the claim lasts.
type errNoToken struct{ wait time.Duration }

func (e errNoToken) Error() string {
	return fmt.Sprintf("no token within the lease; the next in %v", e.wait)
}

// waitStep is how often a waiting sender looks whether its claim still has time.
const waitStep = 200 * time.Millisecond

// wait returns a token, or errNoToken when none comes while hold lasts, or ctx's error.
func (b *bucket) wait(ctx context.Context, hold lease.Hold) (token, error) {
	select { // one unused token per process, whatever its number of workers
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return token{}, ctx.Err()
	}
	done := sync.OnceFunc(func() { <-b.turn })
	for {
		asked := time.Now() // before the take: a pause in the middle of it counts
		taken, wait, err := b.take(ctx)
		switch {
		case err == nil && !hold.MayBegin(): // a token that was taken is given up
			err = errNoToken{wait}
		case err == nil && taken:
			return token{taken: asked, done: done}, nil
		case err == nil && !sleep(ctx, max(time.Millisecond, min(wait, waitStep))):
			err = ctx.Err()
		}
		if err != nil {
			done()
			return token{}, err
		}
	}
}
