package auth

import (
	"maps"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxAddresses bounds what a brake remembers. When it is full of those that
	// guess, further addresses share one entry.
	maxAddresses = 4096
	// forgetAfter is how long an address that guesses no more is remembered.
	forgetAfter = 10 * time.Minute
	// sweepEvery is the pause between two looks at everybody, which cost something.
	sweepEvery = time.Minute
	// longestWait bounds the pause between two guesses.
	longestWait = time.Minute
)

// brake slows down guessing: an address may be wrong so often, then it has to wait
// before the next guess counts, twice as long each time.
type brake struct {
	free int

	mu     sync.Mutex
	wrongs map[netip.Prefix]*guesser
	swept  time.Time // when it looked for those to forget
}

// guesser is an address that was wrong.
type guesser struct {
	count       int
	last, until time.Time
}

func newBrake(free int) *brake { return &brake{free: free, wrongs: map[netip.Prefix]*guesser{}} }

// wait returns how long an address still has to wait.
func (b *brake) wait(from netip.Addr) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.wrongs[b.place(from)]; g != nil {
		return max(time.Until(g.until), 0)
	}
	return 0
}

// wrong counts a wrong guess and returns how long the address has to wait; first
// tells that it did not have to before. Guesses within the wait do not count.
func (b *brake) wrong(from netip.Addr) (wait time.Duration, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	place := b.place(from)
	g := b.wrongs[place]
	if g == nil || now.Sub(g.last) > forgetAfter {
		g = &guesser{}
		b.wrongs[place] = g
	}
	if now.Before(g.until) {
		return g.until.Sub(now), false
	}
	g.last = now
	if g.count++; g.count <= b.free {
		return 0, false
	}
	wait = longestWait
	if over := g.count - b.free - 1; over < 6 {
		wait = time.Second << over
	}
	g.until = now.Add(wait)
	return wait, g.count == b.free+1
}

// place is where an address is counted: IPv6 by its network, for a subscriber has a
// whole one. The caller holds the lock.
func (b *brake) place(from netip.Addr) netip.Prefix {
	from = from.Unmap()
	bits := 32
	if from.Is6() {
		bits = 64
	}
	place, _ := from.Prefix(bits) // an address that is none has the zero prefix
	if b.wrongs[place] != nil || len(b.wrongs) < maxAddresses {
		return place
	}
	if time.Since(b.swept) > sweepEvery {
		b.swept = time.Now()
		maps.DeleteFunc(b.wrongs, func(_ netip.Prefix, g *guesser) bool { return time.Since(g.last) > forgetAfter })
	}
	if len(b.wrongs) < maxAddresses {
		return place
	}
	return netip.Prefix{}
}
