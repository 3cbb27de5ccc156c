package httpapi

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/config"
	"loquat/internal/feed"
	"loquat/internal/httpapi/route"
	"loquat/internal/store"
)

const (
	// streamWindow is how many bytes of events a stream reads from the log at a time. It
	// limits what is held for a client that does not read.
	streamWindow = 256 << 10

	// freeBytes of a window need no reservation, because most new events are small.
	freeBytes = 64 << 10

	// reserveWait is how long a call waits for others to finish before it is refused.
	reserveWait = 5 * time.Second

	// stuckAfter is how long a client may read nothing of its answer before its connection can
	// be closed because others need the memory.
	stuckAfter = time.Second

	// cutPause is the least time between two connections that are closed for others.
	cutPause = 250 * time.Millisecond
)

// inflightLimits bounds, for each token and in all, how many calls follow the log and how many
// bytes of events are held for clients that have not read them yet.
type inflightLimits struct {
	limits func() config.Limits // of followers; those of bytes are fixed
	bytes  *semaphore.Weighted  // in all

	maxBytes, maxBytesPerToken int64

	mu        sync.Mutex
	followers int
	by        map[string]*tokenUse
	holds     map[*hold]struct{}
	lastCut   time.Time
}

// tokenUse counts the calls of one token. inflightLimits.mu guards the numbers.
type tokenUse struct {
	calls     int // calls that may reserve memory
	followers int // calls that follow the log
	bytes     *semaphore.Weighted
}

// hold is the memory that one call has reserved. Only the call's goroutine uses its methods.
type hold struct {
	in    *inflightLimits
	token *tokenUse
	cut   func() // closes the connection

	least int64 // bytes that the read of a window must reserve

	bytes atomic.Int64
	// writing is since when a write waits for the client, in Unix nanoseconds; 0 if none does. A call
	// that reads the log, which may take long, has nothing to write.
	writing atomic.Int64
	isCut   atomic.Bool
}

func newInflightLimits(l *config.Live) *inflightLimits {
	limits := l.Now().Limits
	return &inflightLimits{
		limits: func() config.Limits { return l.Now().Limits }, maxBytes: limits.MaxInflightBytes, maxBytesPerToken: limits.MaxInflightBytesPerToken,
		bytes: semaphore.NewWeighted(limits.MaxInflightBytes), by: map[string]*tokenUse{}, holds: map[*hold]struct{}{},
	}
}

// following returns how many calls follow the log.
func (in *inflightLimits) following() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.followers
}

// follow counts a call that follows the log, until done is called. cut ends the call's
// connection.
func (in *inflightLimits) follow(who auth.Principal, cut func()) (h *hold, done func(), err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	use, limits := in.use(who), in.limits()
	switch {
	case use.followers >= limits.MaxFollowersPerToken:
		return nil, nil, loquat.Errorf(loquat.CodeRateLimited,
			"this token has %d streams, polls and relayed requests already; end some, or raise limits.max_followers_per_token", use.followers)
	case in.followers >= limits.MaxFollowers:
		return nil, nil, loquat.Errorf(loquat.CodeUnavailable,
			"there are %d streams, polls and relayed requests already; try again later, or raise limits.max_followers", in.followers)
	}
	h, left := in.enter(who, use, cut)
	use.followers++
	in.followers++
	return h, func() {
		in.mu.Lock()
		in.followers--
		use.followers--
		in.mu.Unlock()
		left()
	}, nil
}

// snapshot lets a call hold a snapshot of a session, until done is called.
func (in *inflightLimits) snapshot(who auth.Principal, cut func()) (h *hold, done func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.enter(who, in.use(who), cut)
}

// use returns what the calls of a token use. The caller holds the lock.
func (in *inflightLimits) use(who auth.Principal) *tokenUse {
	if use := in.by[tokenName(who)]; use != nil {
		return use
	}
	return &tokenUse{bytes: semaphore.NewWeighted(in.maxBytesPerToken)}
}

// tokenName returns a unique name of a token. All callers without a token share one name.
func tokenName(who auth.Principal) string { return who.Kind + " " + who.ID }

// enter adds a call. The caller holds the lock.
func (in *inflightLimits) enter(who auth.Principal, use *tokenUse, cut func()) (h *hold, left func()) {
	h = &hold{in: in, token: use, cut: cut}
	use.calls++
	in.by[tokenName(who)] = use
	in.holds[h] = struct{}{}
	return h, func() {
		h.release()
		in.mu.Lock()
		defer in.mu.Unlock()
		delete(in.holds, h)
		if use.calls--; use.calls == 0 {
			delete(in.by, tokenName(who))
		}
	}
}

// beginWrite records that the client now has something to read.
func (h *hold) beginWrite() {
	if h != nil {
		h.writing.Store(time.Now().UnixNano())
	}
}

// endWrite records that the client, or the system for it, has taken what was written.
func (h *hold) endWrite() {
	if h != nil {
		h.writing.Store(0)
	}
}

// ended reports whether the call was ended in favour of others.
func (h *hold) ended() bool { return h != nil && h.isCut.Load() }

// release gives back the whole reservation.
func (h *hold) release() {
	if n := h.bytes.Swap(0); n > 0 {
		h.token.bytes.Release(h.ofToken(n))
		h.in.bytes.Release(h.ofAll(n))
	}
}

// A call that needs more than a bound reserves the bound. So it is allowed while no other call
// has a reservation.
func (h *hold) ofToken(n int64) int64 { return min(n, h.in.maxBytesPerToken) }
func (h *hold) ofAll(n int64) int64   { return min(n, h.in.maxBytes) }

// noRoom is the error of a reservation that was refused.
type noRoom struct{ error }

func (e noRoom) Unwrap() error { return e.error }

// reserve changes the call's reservation to a number of bytes. It waits up to reserveWait for
// room, in the order of calls, and disconnects clients that do not read. The call has no
// reservation while it waits.
func (h *hold) reserve(ctx context.Context, bytes int64) error {
	h.release()
	if bytes <= freeBytes {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, reserveWait)
	defer cancel()
	if err := h.acquire(waiting, h.token.bytes, h.ofToken(bytes), h.token); err != nil {
		return h.refusal(ctx, loquat.CodeRateLimited,
			"answers of %d bytes are on their way to this token; read them faster, make fewer calls at a time, or raise limits.max_inflight_bytes_per_token", h.in.maxBytesPerToken)
	}
	if err := h.acquire(waiting, h.in.bytes, h.ofAll(bytes), nil); err != nil {
		h.token.bytes.Release(h.ofToken(bytes))
		return h.refusal(ctx, loquat.CodeUnavailable,
			"answers of %d bytes are on their way to clients; try again later, or raise limits.max_inflight_bytes", h.in.maxBytes)
	}
	h.bytes.Store(bytes)
	return nil
}

func (h *hold) refusal(ctx context.Context, code loquat.Code, format string, bytes int64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return noRoom{loquat.Errorf(code, format, bytes)}
}

// acquire waits for a semaphore, and meanwhile disconnects clients that do not read: those of a
// token, or all if token is nil.
func (h *hold) acquire(ctx context.Context, s *semaphore.Weighted, n int64, of *tokenUse) error {
	if s.TryAcquire(n) {
		return nil
	}
	h.in.cutStuck(of)
	ticks := time.NewTicker(stuckAfter / 4)
	defer ticks.Stop()
	stop := make(chan struct{})
	var cutting sync.WaitGroup
	defer cutting.Wait()
	defer close(stop)
	cutting.Go(func() {
		for {
			select {
			case <-ticks.C:
				h.in.cutStuck(of)
			case <-stop:
				return
			}
		}
	})
	return s.Acquire(ctx, n)
}

// cutStuck ends the call whose client has read nothing for longest. It ends at most one call
// per cutPause, because each frees memory for several waiting calls.
func (in *inflightLimits) cutStuck(of *tokenUse) {
	now := time.Now()
	before := now.Add(-stuckAfter).UnixNano()
	var found *hold
	in.mu.Lock()
	defer in.mu.Unlock() // until it is cut: the end of a call takes the lock, and nothing may be cut after it
	if now.Sub(in.lastCut) >= cutPause {
		for h := range in.holds {
			if h.bytes.Load() == 0 || h.isCut.Load() || of != nil && h.token != of {
				continue
			}
			if since := h.writing.Load(); since != 0 && since < before {
				found, before = h, since
			}
		}
		in.lastCut = now
	}
	if found != nil {
		found.isCut.Store(true)
		found.cut()
	}
}

// shrink gives back the part of the reservation that a read did not need. It returns false if
// the read needs more than is reserved.
func (h *hold) shrink(bytes int64) bool {
	held := h.bytes.Load()
	switch {
	case bytes <= freeBytes:
		h.release()
	case bytes <= held:
		h.bytes.Store(bytes)
		h.token.bytes.Release(h.ofToken(held) - h.ofToken(bytes))
		h.in.bytes.Release(h.ofAll(held) - h.ofAll(bytes))
	default:
		return false
	}
	return true
}

// reserveRead implements feed.Query.Reserve.
func (h *hold) reserveRead(ctx context.Context, bytes int) error {
	if bytes == 0 {
		return h.reserve(ctx, 0)
	}
	return h.reserve(ctx, max(int64(bytes), h.least))
}

// window reads a window of the log. The reservation for its bytes lasts until the next window
// is read.
func (h *hold) window(ctx context.Context, read func(context.Context) (feed.Window, error)) (feed.Window, error) {
	h.release() // the last window was written
	h.least = 0
	for {
		w, err := read(ctx)
		if err != nil {
			h.release()
			return w, err
		}
		size := int64(0)
		for i := range w.Events {
			size += int64(len(w.Events[i].Body))
		}
		if h.shrink(size) {
			return w, nil
		}
		// More was read than was reserved: a single large event, or events in memory. They
		// are read again when there is room.
		w, h.least = feed.Window{}, size
		if err := h.reserve(ctx, size); err != nil {
			return w, err
		}
	}
}

// large serves a call whose answer may have a whole session. It reserves room before the session is read. The size
// is known only after the read; then Reply gives back the rest.
func (a *api) large(x *route.Exchange, who auth.Principal) error {
	rc := http.NewResponseController(x.W)
	h, done := a.inflight.snapshot(who, func() { _ = rc.SetWriteDeadline(time.Now()) })
	defer done()
	if err := h.reserve(x.R.Context(), store.WindowBytes); err != nil {
		return err
	}
	if aw, ok := x.W.(*responseWriter); ok {
		aw.held = h
	}
	x.Encoded = func(bytes int) { h.shrink(int64(bytes)) }
	return x.Route.Serve(x)
}

// follow serves a call that follows the log, and counts it while it does.
func (a *api) follow(x *route.Exchange, who auth.Principal) error {
	rc := http.NewResponseController(x.W)
	h, done, err := a.inflight.follow(who, func() { _ = rc.SetWriteDeadline(time.Now()) })
	if err != nil {
		return err
	}
	defer done()
	if aw, ok := x.W.(*responseWriter); ok {
		aw.held = h
	}
	return a.access.follow(x, who, x.Route.Serve)
}

// heldBy returns the reservation of a call that follows the log.
func heldBy(w http.ResponseWriter) *hold {
	if aw, ok := w.(*responseWriter); ok {
		return aw.held
	}
	return nil
}
