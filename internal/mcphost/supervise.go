package mcphost

import (
	"context"
	"errors"
	"time"
)

// How a process that dies is started again: soon at first, then later and later, and
// rarely once it has failed so often that it looks broken. A life that lasts makes
// all of it forgotten.
const (
	firstPause  = 500 * time.Millisecond
	lastPause   = 30 * time.Second
	rarePause   = 5 * time.Minute
	maxFailures = 8           // in a row; then the plugin has failed
	lasting     = time.Minute // of a life
)

// errEnded is why a life has ended for which there is no other reason.
var errEnded = errors.New("it ended")

// supervise runs lives, one after the other, until ctx ends. After each, fallen is
// told why it ended, how long the pause is, and whether the plugin has failed.
func supervise(ctx context.Context, live func(context.Context) error, fallen func(why error, pause time.Duration, failed bool)) {
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
		pause := pauseAfter(failures)
		fallen(err, pause, failures >= maxFailures)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// pauseAfter is how long it takes until the next life after so many failures in a row.
func pauseAfter(failures int) time.Duration {
	if failures >= maxFailures {
		return rarePause
	}
	pause := firstPause
	for range failures - 1 {
		pause = min(2*pause, lastPause)
	}
	return pause
}
