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
// it costs next to nothing; one timer looks at the notes when it has to.
type watch struct {
	cancel  context.CancelCauseFunc
	timeout time.Duration
	start   time.Time
	heard   atomic.Int64 // nanoseconds after start of the last activity
	spoke   atomic.Int64 // the same of the last activity that brought data
	unread  atomic.Bool  // nobody waits for the backend at the moment: its silence is ours

	mu    sync.Mutex
	timer *time.Timer
	ended bool // the timer is no longer for looking
}

func newWatch(timeout time.Duration, cancel context.CancelCauseFunc) *watch {
	w := &watch{cancel: cancel, timeout: timeout, start: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(timeout, w.look)
	return w
}

// hear notes a sign of life.
func (w *watch) hear() { w.heard.Store(int64(time.Since(w.start))) }

// listen notes that the backend's silence counts from here on. The time since it was
// heard last was the reader's own.
func (w *watch) listen() {
	if !w.unread.Load() {
		return
	}
	now := int64(time.Since(w.start))
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
	now := time.Since(w.start)
	silence := w.timeout - (now - time.Duration(w.heard.Load()))
	comments := max(maxComments, w.timeout) - (now - time.Duration(w.spoke.Load()))
	if resting {
		silence, comments = w.timeout, w.timeout
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
			w.timer.Reset(min(silence, comments))
		}
	}
}

// stop ends the call and the watch.
func (w *watch) stop() {
	w.mu.Lock()
	w.ended = true
	w.timer.Stop()
	w.mu.Unlock()
	w.cancel(context.Canceled)
}
