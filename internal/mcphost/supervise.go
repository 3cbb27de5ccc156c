package mcphost

import (
	"context"
	"errors"
	"time"
)

// Delays before a dead process is restarted. They grow from firstDelay to maxDelay. After
// maxFailures in a row the plugin counts as failed, and the delay is failedDelay. A process
// that ran for lasting resets the count.
const (
	firstDelay  = 500 * time.Millisecond
	maxDelay    = 30 * time.Second
	failedDelay = 5 * time.Minute
	maxFailures = 8           // in a row; then the plugin counts as failed
	lasting     = time.Minute // run time that resets the count
)

// errEnded is the reason for an end without an error.
var errEnded = errors.New("it ended")

// supervise calls live again and again until ctx ends. After each call it calls ended with
// the reason, the delay before the next call, and whether the plugin counts as failed.
func supervise(ctx context.Context, live func(context.Context) error, ended func(why error, pause time.Duration, failed bool)) {
	failures := 0
	for {
		began := time.Now()
		err := live(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errEnded
		}
		if time.Since(began) >= lasting {
			failures = 0
		}
		failures++
		pause := delayAfter(failures)
		ended(err, pause, failures >= maxFailures)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// delayAfter returns the delay before the next start after so many failures in a row.
func delayAfter(failures int) time.Duration {
	if failures >= maxFailures {
		return failedDelay
	}
	pause := firstDelay
	for range failures - 1 {
		pause = min(2*pause, maxDelay)
	}
	return pause
}
