package provider

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// maxComments is how long comments alone keep a stream alive.
const maxComments = 30 * time.Minute

// afterDone is how long a stream may stay open after its [DONE], for late usage and
// so that its connection can be used again.
const afterDone = 50 * time.Millisecond

var (
	errSilence  = errors.New("the backend was silent for too long")
	errComments = errors.New("the backend sent nothing but comments for 30 minutes")
	errAfterEnd = errors.New("the backend keeps its stream open after [DONE]")
)

// watch cancels an HTTP call that goes quiet. Activity is only noted down, so that
// it costs next to nothing; one timer looks at the notes.
//
// A look that comes late shows that the process did not run: it was stopped, its container
// was paused, or it had no CPU. Nobody could read then, so that time is not silence. The
// timer therefore looks more often than the timeout asks for.
type watch struct {
	cancel  context.CancelCauseFunc
	timeout time.Duration
	tick    time.Duration        // between two looks, at most
	now     func() time.Duration // since the call began
	heard   atomic.Int64         // nanoseconds after the beginning of the last activity
	spoke   atomic.Int64         // the same of the last activity that brought data
	ending  atomic.Bool          // finish_reason came
	unread  atomic.Bool          // nobody waits for the backend at the moment: its silence is ours

	mu    sync.Mutex
	timer *time.Timer
	due   time.Duration // when the timer looks next
	ended bool          // the timer is no longer for looking
}

func newWatch(timeout time.Duration, cancel context.CancelCauseFunc) *watch {
	start := time.Now()
	return newWatchWith(func() time.Duration { return time.Since(start) }, timeout, cancel)
}

// newWatchWith is newWatch with a clock, which begins at 0.
func newWatchWith(now func() time.Duration, timeout time.Duration, cancel context.CancelCauseFunc) *watch {
	tick := min(max(timeout/8, 10*time.Millisecond), time.Second, timeout)
	w := &watch{cancel: cancel, timeout: timeout, tick: tick, now: now, due: tick}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(tick, w.look)
	return w
}

// hear notes a sign of life.
func (w *watch) hear() { w.heard.Store(int64(w.now())) }

// listen notes that the backend's silence counts from here on. The time since it was
// heard last was the reader's own.
func (w *watch) listen() {
	if !w.unread.Load() {
		return
	}
	now := int64(w.now())
	w.spoke.Add(now - w.heard.Swap(now))
	w.unread.Store(false)
}

// rest notes that the reader has turned to something else.
func (w *watch) rest() {
	w.hear()
	w.unread.Store(true)
}

// speak notes that the last sign of life brought data.
func (w *watch) speak() { w.spoke.Store(w.heard.Load()) }

// end notes that finish_reason came.
func (w *watch) end() { w.ending.Store(true) }

// finish cancels the call soon.
func (w *watch) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.ended = true
	w.timer.Stop()
	w.timer = time.AfterFunc(afterDone, func() { w.cancel(errAfterEnd) })
}

func (w *watch) look() {
	resting := w.unread.Load() // first: who listens again has noted the time before
	late := w.excuse()
	now := w.now()
	silence := w.timeout - (now - time.Duration(w.heard.Load()))
	comments := max(maxComments, w.timeout) - (now - time.Duration(w.spoke.Load()))
	if w.ending.Load() { // the reply is complete: comments do not hold it up
		comments = w.timeout - (now - time.Duration(w.spoke.Load()))
	}
	if resting {
		silence, comments = w.timeout, w.timeout
	}
	if late >= w.tick { // what came meanwhile waits to be read
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
			next := min(silence, comments, w.tick)
			w.due = now + next
			w.timer.Reset(next)
		}
	}
}

// excuse takes the time by which a look is late out of the silence, and returns it.
func (w *watch) excuse() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	late := now - w.due
	if late <= 0 {
		return 0
	}
	w.due = now
	for _, mark := range []*atomic.Int64{&w.heard, &w.spoke} {
		for old := mark.Load(); !mark.CompareAndSwap(old, min(old+int64(late), int64(now))); old = mark.Load() {
		}
	}
	return late
}

// left returns how much of the timeout is left for the backend to be heard.
func (w *watch) left() time.Duration {
	w.excuse()
	return w.timeout - (w.now() - time.Duration(w.heard.Load()))
}

// stop ends the call and the watch.
func (w *watch) stop() {
	w.mu.Lock()
	w.ended = true
	w.timer.Stop()
	w.mu.Unlock()
	w.cancel(context.Canceled)
}
