// Package backoff computes growing delays between attempts, reads the delays that servers ask for,
// and waits for them.
//
// It does not count attempts: the caller knows which of them count as failures in a row.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff describes delays that double from First up to Max.
type Backoff struct {
	First, Max time.Duration

	// Jitter makes Next and Wait take a random part of the delay, at least half of it. Clients
	// need it: those which lost the same server must not return at the same time.
	Jitter bool
}

// Delay returns the delay after n delays before it, without jitter.
func (b Backoff) Delay(n int) time.Duration {
	delay := min(b.First, b.Max)
	for ; n > 0 && delay < b.Max; n-- {
		if delay > b.Max/2 {
			return b.Max
		}
		delay *= 2
	}
	return delay
}

// Next returns the delay after n delays before it, with jitter.
func (b Backoff) Next(n int) time.Duration {
	delay := b.Delay(n)
	if b.Jitter && delay > 1 {
		delay = delay/2 + rand.N(delay-delay/2)
	}
	return delay
}

// Wait sleeps for Next, or until ctx ends. It then returns the error of ctx.
func (b Backoff) Wait(ctx context.Context, n int) error {
	return Sleep(ctx, b.Next(n))
}

// Sleep waits for d, or until ctx ends. It then returns the error of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
