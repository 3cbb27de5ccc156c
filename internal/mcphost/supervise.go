package mcphost

import (
	"context"
	"errors"
	"time"

	"loquat/internal/backoff"
)

// Delays before a dead process is restarted. They grow as restart says. After
// maxFailures in a row the plugin counts as failed, and the delay is failedDelay. A process
// that ran for lasting resets the count.
const (
	failedDelay = 5 * time.Minute
	maxFailures = 8           // in a row; then the plugin counts as failed
	lasting     = time.Minute // run time that resets the count
)

var restart = backoff.Backoff{First: 500 * time.Millisecond, Max: 30 * time.Second}

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
		if backoff.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// delayAfter returns the delay before the next start after so many failures in a row.
func delayAfter(failures int) time.Duration {
	if failures >= maxFailures {
		return failedDelay
	}
	return restart.Delay(failures - 1)
}
