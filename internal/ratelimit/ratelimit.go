// Package ratelimit bounds how often each client address may do something: show a wrong
// token, open a socket, call a route without a token.
//
// It promises that its memory is bounded however many addresses there are, and that an
// address cannot get a new allowance by having other addresses push it out of memory.
package ratelimit

import (
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// Options say how often an address may do something.
type Options struct {
	Rate  rate.Limit // per second, once the burst is used up
	Burst int        // that an address has at first, and again after it was quiet
	Known int        // addresses that are remembered; 0 means 10,000
}

const (
	defaultKnown = 10_000

	// quiet is how long an address must not have been refused before its next refusal is
	// the first one again.
	quiet = 10 * time.Minute
)

// Limiter limits the rate of each client address. An IPv6 address counts as its /64,
// because one customer has at least that much. Limiter is safe for concurrent use.
type Limiter struct {
	opts Options

	mu     sync.Mutex
	known  *simplelru.LRU[netip.Prefix, *allowance]
	shared *allowance // of new addresses while all known ones are active
}

// allowance is what one address has left. Limiter.mu guards refused.
type allowance struct {
	bucket  *rate.Limiter
	refused time.Time // the last time; zero means never
}

// New returns a Limiter that knows no address yet.
func New(opts Options) *Limiter {
	if opts.Known == 0 {
		opts.Known = defaultKnown
	}
	known, err := simplelru.NewLRU[netip.Prefix, *allowance](opts.Known, nil)
	if err != nil {
		panic("ratelimit: " + err.Error()) // Known is negative
	}
	l := &Limiter{opts: opts, known: known}
	l.shared = l.newAllowance()
	return l
}

func (l *Limiter) newAllowance() *allowance {
	return &allowance{bucket: rate.NewLimiter(l.opts.Rate, l.opts.Burst)}
}

// Allow counts one event of an address and reports whether it is within the rate. An
// event beyond the rate uses up nothing.
func (l *Limiter) Allow(from netip.Addr) bool {
	wait, _ := l.Take(from)
	return wait == 0
}

// Take counts one event of an address. It returns how long the address has to wait before
// its next event is within the rate, 0 when this one is. first reports that the address
// was not refused for ten minutes, so that a caller can log the beginning and not every
// refusal.
func (l *Limiter) Take(from netip.Addr) (wait time.Duration, first bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.allowance(from, now)
	if a.bucket.AllowN(now, 1) {
		return 0, false
	}
	first = now.Sub(a.refused) > quiet
	a.refused = now
	return l.until(a, now), first
}

// Owe makes at least n events count against an address, because it caused them elsewhere. An
// address that is over its burst has to wait until all of them are paid for. Owe does not make
// room for an address that is not known.
func (l *Limiter) Owe(from netip.Prefix, n int) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.known.Get(from)
	if !ok {
		return
	}
	missing := n - int(float64(l.opts.Burst)-a.bucket.TokensAt(now)+0.5)
	for ; missing > 0; missing -= l.opts.Burst {
		a.bucket.ReserveN(now, min(missing, l.opts.Burst))
	}
}

// until returns how long an allowance is empty. The caller holds the lock.
func (l *Limiter) until(a *allowance, now time.Time) time.Duration {
	missing := 1 - a.bucket.TokensAt(now)
	return max(time.Duration(missing/float64(l.opts.Rate)*float64(time.Second)), time.Nanosecond)
}

// allowance finds or makes the allowance of an address. Only an address whose allowance is
// full again makes room for a new one: forgetting another would give it a new allowance.
// The caller holds the lock.
func (l *Limiter) allowance(from netip.Addr, now time.Time) *allowance {
	key := Network(from)
	if a, ok := l.known.Get(key); ok {
		return a
	}
	if l.known.Len() >= l.opts.Known {
		if _, oldest, ok := l.known.GetOldest(); ok && oldest.bucket.TokensAt(now) < float64(l.opts.Burst) {
			return l.shared
		}
	}
	a := l.newAllowance()
	l.known.Add(key, a)
	return a
}

// Network returns what counts as one client: an IPv4 address, or the /64 of an IPv6 one.
// An invalid address has the zero prefix.
func Network(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap()
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}
