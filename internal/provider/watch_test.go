package provider

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Once [DONE] has come the call ends soon, also when the timer looks at that very moment.
func TestLookWhileTheStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 2_000 {
			ctx, cancel := context.WithCancelCause(t.Context())
			w := newWatch(time.Hour, cancel)
			var both sync.WaitGroup
			both.Go(w.look)
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
