package provider

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// maxComments limits how long comments without data keep a stream alive.
const maxComments = 30 * time.Minute

// afterDone limits how long a stream may stay open after its [DONE]. The time allows for
// late usage, and for an end of the body after which the connection can be reused.
const afterDone = 50 * time.Millisecond

var (
	errSilence  = errors.New("the backend was silent for too long")
	errComments = errors.New("the backend sent nothing but comments for 30 minutes")
	errAfterEnd = errors.New("the backend keeps its stream open after [DONE]")
)

// idleWatch cancels an HTTP call whose backend sends nothing for the timeout. Activity only
// stores a time, which is cheap. A timer compares the stored times with the clock.
//
// If the timer fires late, the process did not run: it was stopped, its container was
// paused, or it had no CPU. Nothing could be read in that time, so it does not count as
// silence. The timer therefore fires more often than the timeout requires.
type idleWatch struct {
	cancel       context.CancelCauseFunc
	timeout      time.Duration
	tick         time.Duration        // the longest time between two calls of check
	now          func() time.Duration // the time since the call began
	lastActivity atomic.Int64         // when the last activity was, in nanoseconds since the call began
	lastData     atomic.Int64         // when the last activity with data was, in nanoseconds since the call began
	finishing    atomic.Bool          // finish_reason has arrived
	readerBusy   atomic.Bool          // our reader is busy; the timeout does not run

	mu    sync.Mutex
	timer *time.Timer
	due   time.Duration // when the timer fires next
	ended bool          // the timer no longer calls check
}

func newIdleWatch(timeout time.Duration, cancel context.CancelCauseFunc) *idleWatch {
	start := time.Now()
	return newIdleWatchWith(func() time.Duration { return time.Since(start) }, timeout, cancel)
}

// newIdleWatchWith returns an idleWatch that uses the clock now, which must begin at 0.
func newIdleWatchWith(now func() time.Duration, timeout time.Duration, cancel context.CancelCauseFunc) *idleWatch {
	tick := min(max(timeout/8, 10*time.Millisecond), time.Second, timeout)
	w := &idleWatch{cancel: cancel, timeout: timeout, tick: tick, now: now}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due = w.untilTick()
	w.timer = time.AfterFunc(w.due, w.check)
	return w
}

// untilTick returns the time until the next tick. Watches with the same tick have theirs at the same moments: the process
// then wakes once for the timers of many streams.
func (w *idleWatch) untilTick() time.Duration {
	return w.tick - time.Duration(time.Now().UnixNano())%w.tick
}

// noteActivity records activity of the backend.
func (w *idleWatch) noteActivity() { w.lastActivity.Store(int64(w.now())) }

// startWaiting records that the reader waits for the backend. Silence counts from now on; the
// time since the last activity was spent by the reader.
func (w *idleWatch) startWaiting() {
	if !w.readerBusy.Load() {
		return
	}
	now := int64(w.now())
	w.lastData.Add(now - w.lastActivity.Swap(now))
	w.readerBusy.Store(false)
}

// stopWaiting records that the reader stopped waiting for the backend.
func (w *idleWatch) stopWaiting() {
	w.noteActivity()
	w.readerBusy.Store(true)
}

// noteData records that the last activity brought data.
func (w *idleWatch) noteData() { w.lastData.Store(w.lastActivity.Load()) }

// noteFinishReason records that finish_reason has arrived.
func (w *idleWatch) noteFinishReason() { w.finishing.Store(true) }

// finish cancels the call after afterDone.
func (w *idleWatch) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.ended = true
	w.timer.Stop()
	w.timer = time.AfterFunc(afterDone, func() { w.cancel(errAfterEnd) })
}

func (w *idleWatch) check() {
	resting := w.readerBusy.Load() // read first: startWaiting stores the time before it clears readerBusy
	late := w.discountDelay()
	now := w.now()
	silence := w.timeout - (now - time.Duration(w.lastActivity.Load()))
	comments := max(maxComments, w.timeout) - (now - time.Duration(w.lastData.Load()))
	if w.finishing.Load() { // the reply is complete, so comments do not keep the stream open
		comments = w.timeout - (now - time.Duration(w.lastData.Load()))
	}
	if resting {
		silence, comments = w.timeout, w.timeout
	}
	if late >= w.tick { // data that arrived meanwhile still has to be read
		silence, comments = max(silence, w.tick), max(comments, w.tick)
	}
	switch {
	case silence <= 0:
		w.cancel(errSilence)
	case comments <= 0:
		w.cancel(errComments)
	default:
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.ended {
			next := min(silence, comments, w.untilTick())
			w.due = now + next
			w.timer.Reset(next)
		}
	}
}

// discountDelay returns how late the timer fired, and subtracts that time from the silence.
func (w *idleWatch) discountDelay() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	late := now - w.due
	if late <= 0 {
		return 0
	}
	w.due = now
	for _, mark := range []*atomic.Int64{&w.lastActivity, &w.lastData} {
		for old := mark.Load(); !mark.CompareAndSwap(old, min(old+int64(late), int64(now))); old = mark.Load() {
		}
	}
	return late
}

// left returns the rest of the timeout, within which the backend must show activity.
func (w *idleWatch) left() time.Duration {
	w.discountDelay()
	return w.timeout - (w.now() - time.Duration(w.lastActivity.Load()))
}

// stop ends the call and the watch.
func (w *idleWatch) stop() {
	w.mu.Lock()
	w.ended = true
	w.timer.Stop()
	w.mu.Unlock()
	w.cancel(context.Canceled)
}
