package provider

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// start starts a request without a delay.
func (p *pacer) start(ctx context.Context, scope string, interval time.Duration) error {
	t, err := p.wait(ctx, scope, interval)
	if err == nil {
		t.end()
	}
	return err
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pacer
		var mu sync.Mutex
		var order []int
		start := time.Now()
		at := map[int]time.Duration{}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond) // they come in this order
				c := t.Context()
				if i == 2 {
					c = ctx
				}
				if p.start(c, "url", time.Second) != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
				at[i] = time.Since(start)
			})
		}
		time.Sleep(100 * time.Millisecond)
		cancel() // 2 gives up and leaves no gap
		wg.Wait()
		if want := []int{0, 1, 3, 4, 5}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
		for place, i := range order {
			if at[i] != time.Duration(place)*time.Second {
				t.Errorf("%d started at %v", i, at[i])
			}
		}
		before := time.Now()
		if p.start(t.Context(), "other", time.Second) != nil || time.Since(before) != 0 {
			t.Errorf("another base URL waits too")
		}
		if p.start(t.Context(), "url", time.Second) != nil || time.Since(before) != time.Second {
			t.Errorf("the first base URL is paced no longer: it starts after %v", time.Since(before))
		}
		if start, err := p.wait(t.Context(), "unpaced", 0); start != nil || err != nil || len(p.scopes) != 2 {
			t.Errorf("a request without an interval is paced: %v, %v", start, err)
		}
	})
}

// Waiting requests start in the order of their arrival, one interval apart. A request
// that gives up leaves no gap, even if it gives up at the moment when it may start.
func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = time.Second
		var p pacer
		var mu sync.Mutex
		var order []int
		began := time.Now()
		var all sync.WaitGroup
		for i := range 12 {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			switch i {
			case 3: // while it waits for its turn
				ctx, cancel = context.WithTimeout(ctx, interval/2)
			case 5: // when its turn begins
				ctx, cancel = context.WithTimeout(ctx, 4*interval)
			case 7: // during its own interval
				ctx, cancel = context.WithTimeout(ctx, 4*interval+interval/2)
			}
			all.Go(func() {
				defer cancel()
				if p.start(ctx, "scope", interval) == nil {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if took := time.Since(began); !slices.IsSorted(order) || took != time.Duration(len(order)-1)*interval || len(order) < 9 {
			t.Errorf("%v started within %s", order, took)
		}
	})
}

// A start counts once, when its first byte is written: neither its answer nor another connection
// of the same request delays the next one.
func TestStartCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pacer
		first, err := p.wait(t.Context(), "url", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		first.end()
		time.Sleep(300 * time.Millisecond)
		if err := first.connected(t.Context()); err != nil || time.Since(began) != 300*time.Millisecond {
			t.Errorf("the request waits again for %v, %v", time.Since(began), err)
		}
		first.end()
		if err := p.start(t.Context(), "url", time.Second); err != nil || time.Since(began) != time.Second {
			t.Errorf("the next request starts after %v, %v", time.Since(began), err)
		}
	})
}

// A request that is connected but cannot write gives the turn to the next one.
func TestWriteThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pacer
		first, err := p.wait(t.Context(), "url", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.Sleep(turnLimit / 2)
		if err := first.connected(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.start(ctx, "url", time.Second); err != nil || time.Since(began) != turnLimit*3/2 {
			t.Errorf("the next request starts after %v, %v", time.Since(began), err)
		}
		first.end()
	})
}
