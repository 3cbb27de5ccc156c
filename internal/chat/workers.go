package chat

import (
	"context"
	"sync"

	"loquat/internal/store"
)

// workers are the requests that run in this process.
type workers struct {
	life context.Context // ends all of them
	// run runs a request to its end and returns the request that its end started.
	run    func(context.Context, store.Request) *store.Request
	recent *recentMessages

	mu       sync.Mutex
	byID     map[string]*worker // by request_id
	draining bool               // no request starts any more
	running  sync.WaitGroup     // workers, and other goroutines of the service
}

// worker is a request that runs in this process.
type worker struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the request has its end
}

// start runs a request that a committed transaction has started. It does nothing for nil.
func (w *workers) start(q *store.Request) {
	if q == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, cancel := context.WithCancelCause(w.life)
	own := &worker{cancel: cancel, done: make(chan struct{})}
	w.byID[q.RequestID] = own
	w.running.Go(func() {
		defer cancel(nil)
		w.start(w.run(ctx, *q)) // before this worker ends, so that awaitIdle does not return in between
		w.mu.Lock()
		delete(w.byID, q.RequestID)
		w.mu.Unlock()
		close(own.done)
	})
}

// cancel stops a request of this process, with a cause.
func (w *workers) cancel(requestID string, cause error) {
	w.recent.forgetStart(requestID) // its worker may not exist yet
	w.mu.Lock()
	defer w.mu.Unlock()
	if own, ok := w.byID[requestID]; ok {
		own.cancel(cause)
	}
}

// cancelAll stops all requests of this process, with a cause.
func (w *workers) cancelAll(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, own := range w.byID {
		own.cancel(cause)
	}
}

// ids returns the requests of this process.
func (w *workers) ids() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make(map[string]bool, len(w.byID))
	for id := range w.byID {
		ids[id] = true
	}
	return ids
}

// drain makes isDraining true for good.
func (w *workers) drain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.draining = true
}

func (w *workers) isDraining() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.draining
}

func (w *workers) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.byID)
}

// awaitIdle returns when no worker is left or ctx ends.
func (w *workers) awaitIdle(ctx context.Context) {
	for {
		own := w.any()
		if own == nil {
			return
		}
		select {
		case <-own.done:
		case <-ctx.Done():
			return
		}
	}
}

func (w *workers) any() *worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, own := range w.byID {
		return own
	}
	return nil
}
