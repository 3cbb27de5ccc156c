package phx

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// addresses limits the rate of each client address. It remembers a fixed number of
// them: when there are more, those that have been quiet make room, and when none has,
// new ones share one limit.
type addresses struct {
	max   int
	rate  rate.Limit
	burst int

	mu     sync.Mutex
	known  map[netip.Addr]*rate.Limiter
	shared *rate.Limiter
}

func newAddresses(maxKnown int, limit rate.Limit, burst int) *addresses {
	return &addresses{max: maxKnown, rate: limit, burst: burst, known: map[netip.Addr]*rate.Limiter{}, shared: rate.NewLimiter(limit, burst)}
}

// allow counts one from an address.
func (a *addresses) allow(address netip.Addr) bool {
	return a.limiter(network(address)).Allow()
}

func (a *addresses) limiter(of netip.Addr) *rate.Limiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.known[of]; l != nil {
		return l
	}
	if len(a.known) >= a.max {
		a.forgetQuiet()
	}
	if len(a.known) >= a.max {
		return a.shared
	}
	l := rate.NewLimiter(a.rate, a.burst)
	a.known[of] = l
	return l
}

// forgetQuiet drops those that may do again all they might at first.
func (a *addresses) forgetQuiet() {
	now := time.Now()
	for addr, l := range a.known {
		if l.TokensAt(now) >= float64(a.burst) {
			delete(a.known, addr)
		}
	}
}

// network is what counts as one client: an IPv4 address, or the /64 that one customer
// of IPv6 has at the least.
func network(ip netip.Addr) netip.Addr {
	ip = ip.Unmap()
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return ip
}
