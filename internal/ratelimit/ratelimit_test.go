package ratelimit

import (
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

func address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

func TestLimiterRefusesBeyondTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Rate: rate.Every(time.Minute), Burst: 3})
		for i := range 3 {
			if !l.Allow(address(1)) {
				t.Fatalf("event %d of the burst is refused", i)
			}
		}
		if wait, first := l.Take(address(1)); wait != time.Minute || !first {
			t.Errorf("after the burst: wait %s, first %v; want 1m0s, true", wait, first)
		}
		time.Sleep(15 * time.Second)
		if wait, first := l.Take(address(1)); wait.Round(time.Millisecond) != 45*time.Second || first {
			t.Errorf("15 s later: wait %s, first %v; want 45s, false", wait, first)
		}
		time.Sleep(45 * time.Second)
		if !l.Allow(address(1)) {
			t.Error("the address waited as long as it was told and is refused")
		}
		if l.Allow(address(1)) {
			t.Error("a second event in the same minute is allowed")
		}
		if !l.Allow(address(2)) {
			t.Error("another address is refused")
		}
		time.Sleep(11 * time.Minute)
		for range 3 {
			l.Allow(address(1))
		}
		if _, first := l.Take(address(1)); !first {
			t.Error("the first refusal after a quiet time is not reported as first")
		}
	})
}

func TestLimiterCountsNetworks(t *testing.T) {
	tests := []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"2001:db8::1", "2001:db8::ffff", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
	}
	for _, tt := range tests {
		l := New(Options{Rate: rate.Every(time.Hour), Burst: 1})
		l.Allow(netip.MustParseAddr(tt.a))
		if got := !l.Allow(netip.MustParseAddr(tt.b)); got != tt.same {
			t.Errorf("%s and %s share an allowance: %v, want %v", tt.a, tt.b, got, tt.same)
		}
	}
	l := New(Options{Rate: rate.Every(time.Hour), Burst: 1})
	l.Allow(netip.Addr{})
	if l.Allow(netip.Addr{}) {
		t.Error("calls without an address are not limited")
	}
}

// Addresses beyond the bound share one allowance until others are quiet. Else somebody
// with many addresses would get a new allowance for each of them, again and again.
func TestLimiterIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const known = 100
		l := New(Options{Rate: rate.Every(time.Minute), Burst: 2, Known: known})
		allowed := 0
		for range 5 {
			for i := range 3 * known {
				if l.Allow(address(i)) {
					allowed++
				}
			}
		}
		if n := l.known.Len(); n != known {
			t.Errorf("%d addresses are remembered, want %d", n, known)
		}
		if want := 2*known + 2; allowed != want {
			t.Errorf("%d events are allowed, want %d", allowed, want)
		}
		time.Sleep(3 * time.Minute)
		for i := range known {
			if !l.Allow(address(1000 + i)) {
				t.Fatalf("new address %d is refused although all others are quiet", i)
			}
		}
	})
}

func TestLimiterIsSafeForConcurrentUse(t *testing.T) {
	l := New(Options{Rate: rate.Every(time.Hour), Burst: 10, Known: 8})
	var wg sync.WaitGroup
	var mu sync.Mutex
	allowed := map[int]int{}
	for range 4 {
		wg.Go(func() {
			for i := range 400 {
				if l.Allow(address(i % 8)) {
					mu.Lock()
					allowed[i%8]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for i := range 8 {
		if allowed[i] != 10 {
			t.Errorf("address %d: %d events are allowed, want 10", i, allowed[i])
		}
	}
}

// Events that an address caused elsewhere count, and are not counted twice.
func TestEventsElsewhereCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Rate: rate.Every(time.Minute), Burst: 3})
		network := Network(address(1))
		l.Owe(network, 100) // the address is not known here
		for range 2 {
			if !l.Allow(address(1)) {
				t.Fatal("an address that is new here is refused")
			}
		}
		for _, c := range []struct {
			owed int
			wait time.Duration // 0: one more is allowed
		}{{2, 0}, {3, time.Minute}, {1, time.Minute}, {13, 11 * time.Minute}, {12, 11 * time.Minute}} {
			l.Owe(network, c.owed)
			if c.wait == 0 {
				continue
			}
			if wait, _ := l.Take(address(1)); wait.Round(time.Second) != c.wait {
				t.Errorf("with %d events in all, wait %s, want %s", c.owed, wait, c.wait)
			}
		}
		time.Sleep(11 * time.Minute)
		if !l.Allow(address(1)) || l.Allow(address(1)) {
			t.Error("after the wait exactly one event is allowed")
		}
	})
}
