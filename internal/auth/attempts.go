package auth

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"loquat"
	"loquat/internal/loglimit"
	"loquat/internal/ratelimit"
)

// Attempts is the attempt limiter: it slows down guessing for each client address. The
// routes, sockets and pairing codes of a process share one Attempts, so that an address has
// one allowance for all of them. It is safe for concurrent use.
//
// Nodes that share a store add up their counts there, a moment after each attempt. Until then
// an address may use its allowance at every node. What it used beyond it counts, so it waits
// the longer: over time it has one allowance at all nodes together.
type Attempts struct {
	log             *loglimit.Logger
	bearers, claims *attemptKind

	mu      sync.Mutex
	store   sharedStore            // nil if this node is the only one
	pending map[attemptCounter]int // attempts that the store does not have yet
	sharing bool                   // a goroutine adds pending to the store
}

// attemptKind is a kind of attempts.
type attemptKind struct {
	name    string // in the store
	what    string // in messages
	limiter *ratelimit.Limiter
}

// attemptCounter names the attempts of one kind from one address.
type attemptCounter struct {
	kind *attemptKind
	from netip.Prefix
}

func (c attemptCounter) key() string { return c.kind.name + " " + c.from.String() }

// How many attempts an address has at once; then it gets one more each minute. Generated
// secrets of 200 bits do not need this limit, but tokens that a person chose may.
const (
	freeBearers = 100
	freeClaims  = 20

	attemptCost = time.Minute
)

// Bounds of sharing counts with other nodes.
const (
	shareEvery  = 100 * time.Millisecond
	shareWithin = 5 * time.Second
	maxShared   = 500    // counters in one statement
	maxPending  = 10_000 // counters; above, further ones count at this node alone
)

// NewAttempts returns an Attempts without any counts. A nil log means the default logger.
func NewAttempts(log *slog.Logger) *Attempts {
	if log == nil {
		log = slog.Default()
	}
	kind := func(name, what string, free int) *attemptKind {
		return &attemptKind{name, what, ratelimit.New(ratelimit.Options{Rate: rate.Every(attemptCost), Burst: free})}
	}
	return &Attempts{
		log: loglimit.New(log), pending: map[attemptCounter]int{},
		bearers: kind("token", "wrong tokens", freeBearers), claims: kind("claim", "pairing codes", freeClaims),
	}
}

// WrongToken counts a wrong token. It fails with CodeRateLimited if the address must wait.
// Valid tokens are neither counted nor throttled.
func (a *Attempts) WrongToken(from netip.Addr) error { return a.count(a.bearers, from) }

// Claim counts the claim of a pairing code. It fails with CodeRateLimited if the address
// must wait. Right codes count too: otherwise many concurrent claims could pass before the
// first is known to be wrong.
func (a *Attempts) Claim(from netip.Addr) error { return a.count(a.claims, from) }

func (a *Attempts) count(kind *attemptKind, from netip.Addr) error {
	wait, first := kind.limiter.Take(from)
	if wait == 0 {
		a.noteShared(attemptCounter{kind, ratelimit.Network(from)})
		return nil
	}
	if first {
		a.log.Log(slog.LevelWarn, "too many "+kind.what+" from one address; it has to wait", "address", from)
	}
	seconds := int((wait + time.Second - 1) / time.Second)
	e := loquat.Errorf(loquat.CodeRateLimited, "there were too many %s from this address; wait %d seconds", kind.what, seconds)
	e.RetryAfter = seconds
	return e
}

// share makes the counts common to all nodes that use a store.
func (a *Attempts) share(s sharedStore) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.store = s
}

// noteShared counts an attempt for the other nodes.
func (a *Attempts) noteShared(c attemptCounter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, counted := a.pending[c]; a.store == nil || !counted && len(a.pending) >= maxPending {
		return
	}
	a.pending[c]++
	if !a.sharing {
		a.sharing = true
		go a.shareCounts()
	}
}

// shareCounts adds the pending counts to the store until there are none. If the store cannot be
// written, it gives up, and the next attempt starts it again.
func (a *Attempts) shareCounts() {
	for {
		a.mu.Lock()
		counts := a.takePending()
		store := a.store
		a.sharing = len(counts) > 0
		a.mu.Unlock()
		if len(counts) == 0 {
			return
		}
		if err := add(store, counts); err != nil {
			a.log.Log(slog.LevelWarn, "could not share the count of wrong tokens and codes with the other nodes", "error", err)
			a.mu.Lock()
			defer a.mu.Unlock()
			for c, n := range counts {
				a.pending[c] += n
			}
			a.sharing = false
			return
		}
		time.Sleep(shareEvery)
	}
}

// takePending removes up to maxShared counters from pending and returns them. The caller holds
// the lock.
func (a *Attempts) takePending() map[attemptCounter]int {
	out := map[attemptCounter]int{}
	for c, n := range a.pending {
		if len(out) == maxShared {
			break
		}
		out[c] = n
		delete(a.pending, c)
	}
	return out
}

// add adds counts to a store. It makes the sums with the counts of the other nodes hold here.
func add(store sharedStore, counts map[attemptCounter]int) error {
	ctx, cancel := context.WithTimeout(context.Background(), shareWithin)
	defer cancel()
	var counters []attemptCounter
	var keys []string
	var debts []time.Duration
	for c, n := range counts {
		counters, keys, debts = append(counters, c), append(keys, c.key()), append(debts, time.Duration(n)*attemptCost)
	}
	sums, err := store.AddDebts(ctx, keys, debts)
	if err != nil {
		return err
	}
	for i, c := range counters {
		c.kind.limiter.Owe(c.from, int(sums[i]/attemptCost))
	}
	return nil
}
