package chat

import (
	"testing"
	"time"
)

func TestCleanupPause(t *testing.T) {
	for retention, want := range map[time.Duration]time.Duration{
		0: 30 * time.Second, time.Millisecond: time.Second, 2 * time.Second: 2 * time.Second,
		30 * time.Second: 30 * time.Second, 7 * 24 * time.Hour: 30 * time.Second,
	} {
		if got := cleanupPause(retention); got != want {
			t.Errorf("retention %v: a cleanup every %v, not %v", retention, got, want)
		}
	}
}
