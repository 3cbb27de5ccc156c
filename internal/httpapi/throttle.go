package httpapi

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"loquat"
	"loquat/internal/backoff"
	"loquat/internal/ratelimit"
)

const (
	// maxOpenBody is the largest body, in bytes, of a route that needs no token.
	maxOpenBody = 16 << 10

	// The calls that one address may make without a token: a burst, then a rate per second.
	// Calls with a body have a lower limit.
	openBurst, openRate         = 1000, 100
	openBodyBurst, openBodyRate = 100, 5

	// maxOpenWork is how many bodies of calls without a token are processed at the same
	// time. Reading a body does not count, so a slow client does not delay others.
	maxOpenWork = 8

	// How often callers of one meter may be refused at once because of a bound. Meters are in groups,
	// so that their number does not matter.
	refusedBurst, refusedRate = 10, 5
	refusedGroups             = 1024
	// maxRefusedPause bounds how long such a refusal waits for its turn.
	maxRefusedPause = 5 * time.Second

	// throttlePause delays the answer to an address that calls too often. A client that
	// waits for its answers then makes one call a second on each of its connections.
	throttlePause = time.Second
)

// throttle bounds the cost of calls without a token: how often an address makes them, and how
// many bodies are processed at the same time.
type throttle struct {
	trusts  func(netip.Addr) bool // the address of a proxy
	calls   *ratelimit.Limiter
	bodies  *ratelimit.Limiter
	lingers *ratelimit.Limiter // limits how often the rest of a body is read after the answer
	working chan struct{}

	seed    maphash.Seed
	refused [refusedGroups]*rate.Limiter // refusals of bounds, by groups of meters
}

func newThrottle(trusts func(netip.Addr) bool) *throttle {
	t := &throttle{
		trusts:  trusts,
		calls:   ratelimit.New(ratelimit.Options{Rate: openRate, Burst: openBurst}),
		bodies:  ratelimit.New(ratelimit.Options{Rate: openBodyRate, Burst: openBodyBurst}),
		lingers: ratelimit.New(ratelimit.Options{Rate: rate.Every(lingerOpenEvery), Burst: lingerOpenAtFirst}),
		working: make(chan struct{}, maxOpenWork),
		seed:    maphash.MakeSeed(),
	}
	for i := range t.refused {
		t.refused[i] = rate.NewLimiter(refusedRate, refusedBurst)
	}
	return t
}

// paceRefused delays the refusal of a caller who is at a bound, if the same meter was refused too often:
// a client that does not wait as Retry-After says then costs others little.
func (t *throttle) paceRefused(ctx context.Context, meter string) {
	turn := t.refused[maphash.String(t.seed, meter)%refusedGroups].Reserve()
	wait := turn.Delay()
	if wait > maxRefusedPause {
		turn.Cancel()
		wait = maxRefusedPause/2 + rand.N(maxRefusedPause/2) // many that wait as long must not come back together
	}
	backoff.Sleep(ctx, wait)
}

// within counts a call of an address and reports whether it is within the limit. A trusted
// proxy that does not name its client stands for many clients, so it has no limit.
func (t *throttle) within(l *ratelimit.Limiter, from caller) bool {
	return t.trusts(from.address) || l.Allow(from.address)
}

// pace delays a call without a token when its address makes too many.
func (t *throttle) pace(ctx context.Context, from caller) {
	if !t.within(t.calls, from) {
		backoff.Sleep(ctx, throttlePause)
	}
}

// admitBody refuses a call with a body when its address makes too many.
func (t *throttle) admitBody(ctx context.Context, from caller) error {
	if t.within(t.bodies, from) {
		return nil
	}
	backoff.Sleep(ctx, throttlePause)
	return loquat.Errorf(loquat.CodeRateLimited, "this address calls routes that need no token too often: at most %d times at first, then %d times a second", openBodyBurst, openBodyRate)
}

// work waits until fewer than maxOpenWork bodies are processed. The caller calls done
// afterwards.
func (t *throttle) work(ctx context.Context) (done func(), err error) {
	select {
	case t.working <- struct{}{}:
		return func() { <-t.working }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// pace delays the answer to a call without a token when its address makes too many.
func (a *api) pace(w http.ResponseWriter, r *http.Request) {
	if aw, ok := w.(*responseWriter); !ok || !aw.admitted {
		a.throttle.pace(r.Context(), a.now().proxies.caller(r))
	}
}
