package s3

import (
	"testing"
	"time"
)

// SetIdleTimeout changes for a test how long a server may take or send no bytes.
func SetIdleTimeout(t *testing.T, timeout time.Duration) {
	before := idleTimeout
	idleTimeout = timeout
	t.Cleanup(func() { idleTimeout = before })
}
