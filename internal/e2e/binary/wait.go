package binary

import (
	"testing"
	"time"
)

// Eventually waits until ok returns true, for at least 15 seconds.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 1500 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("waited in vain for %s", what)
}
