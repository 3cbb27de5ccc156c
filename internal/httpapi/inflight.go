package httpapi

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/chat"
	"loquat/internal/config"
)

const (
	// streamWindow is how many bytes of events a stream takes from the log at a time. What a
	// client that does not read holds is then small.
	streamWindow = 256 << 10

	// freeBytes of a window need no reservation: what is new is small.
	freeBytes = 64 << 10

	// reserveWait is how long a call waits for others to finish before it is refused.
	reserveWait = 5 * time.Second

	// stuckAfter is how long a client may take nothing of its answer before its connection
	// can be closed because others need the memory.
	stuckAfter = time.Second
)

// inflight bounds, for each token and in all, how many calls follow the log and how many
// bytes of events are held for clients that have not read them yet.
type inflight struct {
	limits config.Limits

	mu    sync.Mutex
	all   usage
	by    map[string]*usage // by token
	holds map[*hold]struct{}
	freed chan struct{} // closed when bytes are released
}

// usage is what is in use.
type usage struct {
	followers int
	bytes     int64
}

// hold is what one call holds. A nil hold reserves nothing.
type hold struct {
	in    *inflight
	token string
	cut   func() // ends the connection

	bytes int64        // guarded by in.mu
	moved atomic.Int64 // when the client last took something, in Unix nanoseconds
	isCut atomic.Bool
}

func newInflight(limits config.Limits) *inflight {
	return &inflight{limits: limits, by: map[string]*usage{}, holds: map[*hold]struct{}{}, freed: make(chan struct{})}
}

// tokenOf names whose bounds a call counts in.
func tokenOf(who auth.Principal) string { return who.Kind + " " + who.ID }

// follow counts a call that follows the log, until done is called.
func (in *inflight) follow(who auth.Principal, cut func()) (h *hold, done func(), err error) {
	h = &hold{in: in, token: tokenOf(who), cut: cut}
	in.mu.Lock()
	defer in.mu.Unlock()
	mine := in.by[h.token]
	if mine == nil {
		mine = &usage{}
		in.by[h.token] = mine
	}
	switch {
	case mine.followers >= in.limits.MaxFollowersPerToken:
		return nil, nil, loquat.Errorf(loquat.CodeRateLimited,
			"this token follows the log %d times already; end some streams and polls, or raise limits.max_followers_per_token", mine.followers)
	case in.all.followers >= in.limits.MaxFollowers:
		return nil, nil, loquat.Errorf(loquat.CodeUnavailable,
			"the log is followed %d times already; try again later, or raise limits.max_followers", in.all.followers)
	}
	mine.followers++
	in.all.followers++
	in.holds[h] = struct{}{}
	return h, func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		h.set(mine, 0)
		delete(in.holds, h)
		in.all.followers--
		if mine.followers--; mine.followers == 0 {
			delete(in.by, h.token)
		}
	}, nil
}

// set changes what a call holds. The caller holds the lock.
func (h *hold) set(mine *usage, bytes int64) {
	in := h.in
	less := bytes < h.bytes
	if h.bytes == 0 {
		h.progress() // until now there was nothing to take
	}
	mine.bytes += bytes - h.bytes
	in.all.bytes += bytes - h.bytes
	h.bytes = bytes
	if less {
		close(in.freed)
		in.freed = make(chan struct{})
	}
}

// progress notes that the client took something.
func (h *hold) progress() {
	if h != nil {
		h.moved.Store(time.Now().UnixNano())
	}
}

// ended reports whether the connection was closed for others.
func (h *hold) ended() bool { return h != nil && h.isCut.Load() }

// try changes what the call holds to a number of bytes, if the bounds allow that. Otherwise
// it returns why not, and the call to be ended in favour of this one: nil when all clients
// read. One call is always allowed, however much it needs.
func (h *hold) try(bytes int64) (stuck *hold, freed <-chan struct{}, refusal error) {
	if bytes <= freeBytes {
		bytes = 0
	}
	in := h.in
	in.mu.Lock()
	defer in.mu.Unlock()
	mine := in.by[h.token]
	others, othersOfMine := in.all.bytes-h.bytes, mine.bytes-h.bytes
	switch {
	case othersOfMine > 0 && bytes > 0 && othersOfMine+bytes > in.limits.MaxInflightBytesPerToken:
		return in.stuck(h, true), in.freed, loquat.Errorf(loquat.CodeRateLimited,
			"answers of %d bytes are on their way to this token; read them faster, make fewer calls at a time, or raise limits.max_inflight_bytes_per_token", mine.bytes)
	case others > 0 && bytes > 0 && others+bytes > in.limits.MaxInflightBytes:
		return in.stuck(h, false), in.freed, loquat.Errorf(loquat.CodeUnavailable,
			"answers of %d bytes are on their way to clients; try again later, or raise limits.max_inflight_bytes", in.all.bytes)
	}
	h.set(mine, bytes)
	return nil, nil, nil
}

// stuck returns the call whose client has read nothing for longest. The caller holds the
// lock.
func (in *inflight) stuck(than *hold, ofToken bool) (found *hold) {
	before := time.Now().Add(-stuckAfter).UnixNano()
	for h := range in.holds {
		if h == than || h.bytes == 0 || h.isCut.Load() || ofToken && h.token != than.token {
			continue
		}
		if moved := h.moved.Load(); moved < before {
			found, before = h, moved
		}
	}
	if found != nil {
		found.isCut.Store(true)
	}
	return found
}

// noRoom is the refusal of a reservation.
type noRoom struct{ error }

func (e noRoom) Unwrap() error { return e.error }

// reserve is try that waits for a while, and cuts off clients that do not read.
func (h *hold) reserve(ctx context.Context, bytes int64) error {
	deadline := time.Now().Add(reserveWait)
	for {
		stuck, freed, refusal := h.try(bytes)
		if refusal == nil {
			return nil
		}
		if stuck != nil {
			stuck.cut()
		}
		left := time.Until(deadline)
		if left <= 0 {
			return noRoom{refusal}
		}
		timer := time.NewTimer(min(left, stuckAfter/4)) // until another is stuck
		select {
		case <-freed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		timer.Stop()
	}
}

// window reads a window of the log, and holds its bytes until the next one.
func (h *hold) window(ctx context.Context, q chat.EventQuery, read func(context.Context, chat.EventQuery) (chat.Window, error)) (chat.Window, error) {
	_, _, _ = h.try(0) // the last window was written
	least := int64(0)
	q.Reserve = func(ctx context.Context, bytes int) error {
		if bytes == 0 {
			return h.reserve(ctx, 0)
		}
		return h.reserve(ctx, max(int64(bytes), least))
	}
	for {
		w, err := read(ctx, q)
		if err != nil {
			_, _, _ = h.try(0)
			return w, err
		}
		size := int64(0)
		for _, e := range w.Events {
			size += int64(len(e.Body))
		}
		if _, _, refusal := h.try(size); refusal == nil {
			return w, nil
		}
		// More was read than was reserved: a single large event, or events in memory. They
		// are read again when there is room.
		w, least = chat.Window{}, size
		if err := h.reserve(ctx, size); err != nil {
			return w, err
		}
	}
}

// follow counts a call that follows the log and lets it hold what it answers with.
func (x *exchange) follow() (done func(), err error) {
	aw, _ := x.w.(*answerWriter)
	rc := http.NewResponseController(x.w)
	h, done, err := x.api.inflight.follow(x.who, func() { _ = rc.SetWriteDeadline(time.Now()) })
	if err != nil {
		return nil, err
	}
	x.held = h
	if aw != nil {
		aw.held = h
	}
	return done, nil
}
