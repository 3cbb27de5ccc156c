package mcphost

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A long run resets the count of failures. A plugin that counts as failed is still
// restarted.
func TestSupervise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lives, failed := 0, 0
		live := func(ctx context.Context) error {
			lives++
			if lives == 4 || lives > 20 {
				select {
				case <-ctx.Done():
				case <-time.After(2 * lasting):
				}
			}
			return errors.New("dead")
		}
		var pauses []time.Duration
		go supervise(ctx, live, func(why error, pause time.Duration, hasFailed bool) {
			pauses = append(pauses, pause)
			if hasFailed {
				failed++
			}
		})
		time.Sleep(3 * time.Hour)
		cancel()
		synctest.Wait()
		if lives < 20 || failed != 10 {
			t.Errorf("%d runs, failed after %d of them", lives, failed)
		}
		if pauses[2] != 2*time.Second || pauses[3] != restart.First || pauses[20] != restart.First {
			t.Errorf("pauses %v", pauses)
		}
	})
}

// Functions that are called at changes are registered before the process starts: later they could miss its
// first list of tools.
func TestOnChangeAfterStart(t *testing.T) {
	p, _ := startFake(t, "", manifest{})
	defer func() {
		if recover() == nil {
			t.Error("a function is registered while the process runs")
		}
	}()
	p.OnChange(func() {})
}
