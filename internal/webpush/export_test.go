package webpush

import (
	"testing"
	"time"

	"loquat/internal/backoff"
)

// GiveUpFast shortens the time after which notifications are dropped while too many wait.
func GiveUpFast(t *testing.T) {
	before := overdue
	overdue = time.Second
	t.Cleanup(func() { overdue = before })
}

// RetryFast shortens the delays between attempts for a test.
func RetryFast(t *testing.T) {
	before := retryDelay
	retryDelay = backoff.Backoff{First: time.Millisecond, Max: 10 * time.Millisecond}
	t.Cleanup(func() { retryDelay = before })
}
