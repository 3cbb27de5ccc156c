package provider

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// After [DONE] the call ends soon, even if the timer fires at the same moment.
func TestLookWhileTheStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 2_000 {
			ctx, cancel := context.WithCancelCause(t.Context())
			w := newIdleWatch(time.Hour, cancel)
			var both sync.WaitGroup
			both.Go(w.check)
			both.Go(w.finish)
			both.Wait()
			time.Sleep(2 * afterDone)
			if cause := context.Cause(ctx); !errors.Is(cause, errAfterEnd) {
				t.Fatalf("%v after [DONE] the call goes on: %v", 2*afterDone, cause)
			}
			w.stop()
		}
	})
}

// stoppable is a clock that continues while the process is stopped.
type stoppable struct {
	start time.Time
	away  atomic.Int64
}

func (c *stoppable) now() time.Duration { return time.Since(c.start) + time.Duration(c.away.Load()) }

// stop simulates a stop of the process for d: no timer fires and nothing is read.
func (c *stoppable) stop(d time.Duration) { c.away.Add(int64(d)) }

// Time in which the process did not run does not count as silence of the backend.
func TestWatchOfStoppedProcess(t *testing.T) {
	const timeout = 10 * time.Second
	for _, tc := range []struct {
		name        string
		quiet, stop time.Duration   // before the stop, and its length
		hears       []time.Duration // after the stop
		ends        time.Duration   // after the stop; the silence before it counts
		cause       error
	}{
		{"no stop", 0, 0, nil, 10 * time.Second, errSilence},
		{"stop at the start", 0, time.Minute, nil, 10 * time.Second, errSilence},
		{"stop within the silence", 3 * time.Second, time.Minute, nil, 7 * time.Second, errSilence},
		{"stop just before the timeout", 9900 * time.Millisecond, time.Minute, nil, 1100 * time.Millisecond, errSilence},
		{"heard at once afterwards", 9900 * time.Millisecond, time.Minute, []time.Duration{0}, 10 * time.Second, errSilence},
		{"heard a little later", 9900 * time.Millisecond, time.Minute, []time.Duration{500 * time.Millisecond}, 10500 * time.Millisecond, errSilence},
		{"stop of hours", 5 * time.Second, 3 * time.Hour, []time.Duration{0, 8 * time.Second}, 18 * time.Second, errSilence},
		{"stop shorter than a look", 0, 500 * time.Millisecond, nil, 10 * time.Second, errSilence},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				clock := &stoppable{start: time.Now()}
				w := newIdleWatchWith(clock.now, timeout, cancel)
				defer w.stop()
				time.Sleep(tc.quiet)
				clock.stop(tc.stop)
				resumed := time.Now()
				for _, at := range tc.hears {
					time.Sleep(time.Until(resumed.Add(at)))
					w.noteActivity()
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Hour):
				}
				if took := time.Since(resumed); !errors.Is(context.Cause(ctx), tc.cause) || took < tc.ends || took > tc.ends+w.tick {
					t.Errorf("ended after %v with %v, want %v to %v and %v", took, context.Cause(ctx), tc.ends, tc.ends+w.tick, tc.cause)
				}
			})
		})
	}
}

// Time in which the process was stopped does not count towards maxComments.
func TestCommentsOfStoppedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		clock := &stoppable{start: time.Now()}
		w := newIdleWatchWith(clock.now, 10*time.Second, cancel)
		defer w.stop()
		for range 5 {
			clock.stop(20 * time.Minute)
			time.Sleep(5 * time.Second)
			w.noteActivity()
		}
		if err := context.Cause(ctx); err != nil {
			t.Fatalf("25 s of comments: %v", err)
		}
		start := time.Now()
		for ctx.Err() == nil && time.Since(start) < time.Hour {
			time.Sleep(5 * time.Second)
			w.noteActivity()
		}
		if took := time.Since(start); !errors.Is(context.Cause(ctx), errComments) || took > maxComments+10*time.Second {
			t.Errorf("ended after %v with %v", took, context.Cause(ctx))
		}
	})
}
