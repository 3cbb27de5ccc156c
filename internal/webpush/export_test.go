package webpush

import (
	"testing"
	"time"

	"loquat/internal/backoff"
)

// RetryFast shortens the delays between attempts for a test.
func RetryFast(t *testing.T) {
	before := retryDelay
	retryDelay = backoff.Backoff{First: time.Millisecond, Max: 10 * time.Millisecond}
	t.Cleanup(func() { retryDelay = before })
}
