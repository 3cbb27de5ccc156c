package backoff_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"loquat/internal/backoff"
)

func TestDelay(t *testing.T) {
	for _, c := range []struct {
		first, max time.Duration
		n          int
		want       time.Duration
	}{
		{time.Second, time.Minute, 0, time.Second},
		{time.Second, time.Minute, -1, time.Second},
		{time.Second, time.Minute, 3, 8 * time.Second},
		{time.Second, time.Minute, 5, 32 * time.Second},
		{time.Second, time.Minute, 6, time.Minute},
		{time.Second, time.Minute, math.MaxInt, time.Minute},
		{time.Second, math.MaxInt64, 1000, math.MaxInt64},
		{time.Minute, time.Second, 0, time.Second},
		{0, time.Minute, 3, 0},
		{2, 5, 1, 4},
	} {
		if got := (backoff.Backoff{First: c.first, Max: c.max}).Delay(c.n); got != c.want {
			t.Errorf("from %s to %s, delay %d: %s, want %s", c.first, c.max, c.n, got, c.want)
		}
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := func(b backoff.Backoff) time.Duration {
			began := time.Now()
			if err := b.Wait(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		steady := backoff.Backoff{First: time.Second, Max: time.Minute}
		if got := took(steady); got != 4*time.Second {
			t.Errorf("without jitter: %s", got)
		}
		seen := map[time.Duration]bool{}
		for range 100 {
			got := took(backoff.Backoff{First: time.Second, Max: time.Minute, Jitter: true})
			if got < 2*time.Second || got > 4*time.Second {
				t.Fatalf("with jitter: %s", got)
			}
			seen[got] = true
		}
		if len(seen) < 50 {
			t.Errorf("100 waits with jitter took %d different times", len(seen))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := steady.Wait(ctx, 5); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("cut short: %v after %s", err, time.Since(began))
		}
		for range 20 { // a timer that has fired must not be chosen
			if err := backoff.Sleep(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("no sleep after the end: %v", err)
			}
		}
	})
}

func TestShortestJitter(t *testing.T) {
	if got := (backoff.Backoff{First: 1, Max: 1, Jitter: true}).Next(0); got != 1 {
		t.Errorf("at least half of 1 ns is %d ns", got)
	}
}
