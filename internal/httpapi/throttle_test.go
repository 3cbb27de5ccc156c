package httpapi

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
)

func TestThrottle(t *testing.T) {
	stranger := caller{address: netip.MustParseAddr("192.0.2.1")}
	behind := caller{address: netip.MustParseAddr("10.0.0.1")} // a trusted proxy that does not say who calls
	tests := []struct {
		name    string
		from    caller
		calls   int
		refused int
		took    time.Duration
	}{
		{"within the burst", stranger, openBodyBurst, 0, 0},
		// Each refusal takes a second, in which the address gets openBodyRate calls back.
		{"beyond the burst", stranger, openBodyBurst + 1 + openBodyRate + 1, 2, 2 * throttlePause},
		{"many clients behind a proxy", behind, 3 * openBodyBurst, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				th := newThrottle(newProxies([]string{"10.0.0.0/8"}).trusts)
				began, refused := time.Now(), 0
				for range tt.calls {
					if err := th.admitBody(t.Context(), tt.from); err != nil {
						refused++
						if loquat.CodeOf(err) != loquat.CodeRateLimited {
							t.Errorf("refused with %v", err)
						}
					}
				}
				if took := time.Since(began); refused != tt.refused || took != tt.took {
					t.Errorf("%d calls are refused in %s, want %d in %s", refused, took, tt.refused, tt.took)
				}
			})
		})
	}
}

// A client that disconnects ends its wait, and what is worked on at the same time is
// bounded.
func TestThrottleWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(proxies(nil).trusts)
		var ends []func()
		for range maxOpenWork {
			done, err := th.work(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, done)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := th.work(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one more is worked on: %v", err)
		}
		ends[0]()
		if _, err := th.work(t.Context()); err != nil {
			t.Errorf("after one ended: %v", err)
		}
		began := time.Now()
		for range openBurst + 1 {
			th.pace(ctx, caller{}) // ctx has ended: no pause
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("a client that disconnected is held up for %s", took)
		}
	})
}
