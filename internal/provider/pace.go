package provider

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"loquat/internal/backoff"
)

// Slots spaces starts over several nodes, with a clock that they share. A scope is a base URL.
type Slots interface {
	// ReserveSlot reserves the next start and returns how long it is until then.
	ReserveSlot(ctx context.Context, scope string, interval time.Duration) (time.Duration, error)
	// TakeSlot begins a start and returns 0. If that would be too early, because the start
	// before was late or has not ended, or the scope is paused, it returns how long to wait until
	// the next try. No other start begins until EndStart is called, or for a few seconds.
	// Interval 0 counts the start of a request that is not paced.
	TakeSlot(ctx context.Context, scope string, interval time.Duration) (time.Duration, error)
	// EndStart ends the start that TakeSlot began: the request is on its way. The interval until
	// the next start begins now.
	EndStart(ctx context.Context, scope string) error
	// Pause keeps all nodes from taking slots for a while.
	Pause(ctx context.Context, scope string, pause time.Duration) error
}

// pacer spaces the starts of requests to one base URL. Waiting requests start in order. A
// request that gives up leaves no gap. After a 429 no paced request starts before the request
// that got it may be repeated.
//
// A start takes time: the process may get no CPU, or a connection has to be made. So a request
// has the turn until its first byte is written, and the interval begins then. The backend
// gets no two requests closer than the interval, however late a start is.
//
// If several nodes share slots, the pacer reserves a slot for the first of its waiting requests
// only, so the nodes take turns. While the slots cannot be asked, no paced request starts.
type pacer struct {
	log   *slog.Logger
	slots Slots // nil if there is only this node; set before use

	mu     sync.Mutex
	scopes map[string]*paceScope
}

// paceScope is the pacing of one base URL.
type paceScope struct {
	next *semaphore.Weighted // held by the request that has the turn; it serves waiters in order
	slot time.Time           // reserved with the other nodes, zero if there is none; owned by the holder of next

	mu          sync.Mutex
	last        time.Time // when the last request started
	pausedUntil time.Time
}

const (
	// maxPause is the longest pause of all requests after a 429. If the backend still answers
	// 429 then, the next pause begins.
	maxPause = time.Minute

	askSlotsWithin  = 5 * time.Second // one question about slots
	noteStartWithin = time.Second     // the end of a start is reported
	turnLimit       = 2 * time.Second // to connect, and to write the first byte; less than a start may take by Slots
)

// askAgain is the delay between two questions about slots.
var askAgain = backoff.Backoff{First: 100 * time.Millisecond, Max: time.Second, Jitter: true}

// pacedStart is the start of a request that has the turn. Its holder must call end. The methods of a nil pacedStart do
// nothing.
type pacedStart struct {
	pacer    *pacer
	s        *paceScope
	scope    string
	interval time.Duration // 0 if the request is not paced

	mu    sync.Mutex
	held  bool        // s.next is held
	ended bool        // the request is on its way
	limit *time.Timer // passes the turn on
}

// wait waits until a request to a scope may start: interval after the start of the previous
// request, and after a pause.
func (p *pacer) wait(ctx context.Context, scope string, interval time.Duration) (*pacedStart, error) {
	s := p.scope(scope, interval > 0)
	if s == nil {
		return nil, ctx.Err()
	}
	t := &pacedStart{pacer: p, s: s, scope: scope, interval: max(0, interval)}
	return t, t.await(ctx)
}

// await waits for the turn.
func (t *pacedStart) await(ctx context.Context) error {
	if t.interval == 0 {
		return ctx.Err()
	}
	if err := t.s.next.Acquire(ctx, 1); err != nil {
		return err
	}
	if err := t.awaitStart(ctx); err != nil {
		t.s.next.Release(1)
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = true
	t.limit = time.AfterFunc(turnLimit, t.pass)
	return nil
}

// awaitStart waits until the holder of next may start.
func (t *pacedStart) awaitStart(ctx context.Context) error {
	if t.pacer.slots != nil {
		return t.pacer.awaitSlot(ctx, t.s, t.scope, t.interval)
	}
	for {
		wait := t.s.untilNext(t.interval)
		if err := backoff.Sleep(ctx, wait); err != nil {
			return err
		}
		if wait <= 0 { // no pause began during the wait
			return nil
		}
	}
}

// pass gives the turn to the next request. A backend that cannot be reached must not make its
// requests fail one after the other.
func (t *pacedStart) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held {
		t.held = false
		t.s.next.Release(1)
	}
}

// connected is called when the request has a connection. It waits for another turn if that took
// so long that the turn was passed on.
func (t *pacedStart) connected(ctx context.Context) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	if t.held && t.limit.Stop() {
		t.limit.Reset(turnLimit)
		t.mu.Unlock()
		return nil
	}
	counted := t.interval == 0 || t.ended
	t.mu.Unlock()
	if counted {
		return nil
	}
	t.pass()
	return t.await(ctx)
}

// end counts the start of the request, once: its first byte is written, or it has failed.
func (t *pacedStart) end() {
	if t == nil {
		return
	}
	t.mu.Lock()
	held, ended := t.held, t.ended
	t.held, t.ended = false, true
	t.mu.Unlock()
	if ended {
		return
	}
	t.s.started()
	if held {
		t.limit.Stop()
	}
	if t.pacer.slots == nil {
		if held {
			t.s.next.Release(1)
		}
		return
	}
	go t.report(held) // the caller writes the request
}

// report makes the end of a start known to the other nodes. The next request of this node waits
// until it is.
func (t *pacedStart) report(held bool) {
	ctx, cancel := context.WithTimeout(context.Background(), noteStartWithin)
	defer cancel()
	var err error
	if held {
		err = t.pacer.slots.EndStart(ctx, t.scope)
		t.s.next.Release(1)
	} else {
		_, err = t.pacer.slots.TakeSlot(ctx, t.scope, 0)
	}
	if err != nil {
		t.pacer.log.Warn("could not count the start of a request among the paced ones", "error", err)
	}
}

// awaitSlot waits for a slot that no other node has. The next request of this node uses the slot
// of a request that gave up.
func (p *pacer) awaitSlot(ctx context.Context, s *paceScope, scope string, interval time.Duration) error {
	if time.Since(s.slot) > interval {
		wait, err := p.ask(ctx, func(ctx context.Context) (time.Duration, error) { return p.slots.ReserveSlot(ctx, scope, interval) })
		if err != nil {
			return err
		}
		s.slot = time.Now().Add(wait)
	}
	for wait := time.Until(s.slot); ; {
		if err := backoff.Sleep(ctx, wait); err != nil {
			return err
		}
		var err error
		wait, err = p.ask(ctx, func(ctx context.Context) (time.Duration, error) { return p.slots.TakeSlot(ctx, scope, interval) })
		if err != nil {
			return err
		}
		if wait <= 0 {
			s.slot = time.Time{}
			return ctx.Err()
		}
	}
}

// ask asks about slots until there is an answer or ctx ends.
func (p *pacer) ask(ctx context.Context, question func(context.Context) (time.Duration, error)) (time.Duration, error) {
	for failures := 0; ; failures++ {
		call, cancel := context.WithTimeout(ctx, askSlotsWithin)
		wait, err := question(call)
		cancel()
		if err == nil {
			return wait, nil
		}
		if failures == 0 && ctx.Err() == nil {
			p.log.Warn("cannot ask whether a request may start (min_request_interval_seconds); paced requests wait", "error", err)
		}
		if err := askAgain.Wait(ctx, failures); err != nil {
			return 0, err
		}
	}
}

// pause keeps the paced requests to a scope from starting, if there are any. It returns early if
// ctx ends.
func (p *pacer) pause(ctx context.Context, scope string, pause time.Duration) {
	s := p.scope(scope, false)
	if s == nil {
		return
	}
	until := time.Now().Add(min(pause, maxPause))
	s.pauseUntil(until)
	if p.slots == nil {
		return
	}
	_, _ = p.ask(ctx, func(ctx context.Context) (time.Duration, error) { // an error means that the request was cancelled
		if left := time.Until(until); left > 0 {
			return 0, p.slots.Pause(ctx, scope, left)
		}
		return 0, nil
	})
}

// scope returns the pacing of a base URL. Only a request with an interval creates one.
func (p *pacer) scope(name string, create bool) *paceScope {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.scopes[name]
	if s == nil && create {
		if p.scopes == nil {
			p.scopes = map[string]*paceScope{}
		}
		s = &paceScope{next: semaphore.NewWeighted(1)}
		p.scopes[name] = s
	}
	return s
}

func (s *paceScope) started() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
}

// untilNext returns how long it is until the next start.
func (s *paceScope) untilNext(interval time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(time.Until(s.last.Add(interval)), time.Until(s.pausedUntil))
}

func (s *paceScope) pauseUntil(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.After(s.pausedUntil) {
		s.pausedUntil = at
	}
}
