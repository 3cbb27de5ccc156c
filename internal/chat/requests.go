package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"

	"loquat"
	"loquat/internal/store"
)

// Requests starts, runs, cancels and ends requests.
type Requests struct {
	dependencies
	assets *Assets

	life  context.Context // ends when the service has to stop at once
	owner string          // name of this process in the rows of its requests
	noted map[string]bool // requests whose row counts this start; used only by reconcile

	reconciling atomic.Bool  // reconcile has not succeeded yet
	starting    sync.RWMutex // held shared from the decision to start a request until it is launched
	workers     workers
}

// Running returns how many requests run in this process.
func (s *Requests) Running() int { return s.workers.count() }

// Request returns the present state of a request.
func (s *Requests) Request(ctx context.Context, id string) (loquat.Request, error) {
	return store.Read(ctx, s.store, func(r *store.Reader) (loquat.Request, error) {
		q, err := r.Request(id)
		return q.Request, err
	})
}

// Cancel ends a queued request at once. For a running request it makes request_cancelled the
// only possible end. It does nothing to a request that has ended.
func (s *Requests) Cancel(ctx context.Context, call Call, id string) (Answer[loquat.CancelResult], error) {
	out, err := change(ctx, s.store, call, func(tx *store.Tx) (out Answer[loquat.CancelResult], err error) {
		q, err := tx.Request(id)
		if err != nil {
			return out, err
		}
		out.Accepted = true
		switch {
		case q.Status == loquat.StatusQueued:
			err = cancelQueued(tx, &q)
		case q.Status.Ended():
			out.Accepted = false
		case !q.Cancelled:
			err = tx.FlagCancelled(&q)
		}
		out.Body = loquat.CancelResult{RequestID: id, Status: q.Status}
		return out, err
	})
	if err == nil && out.Body.Status == loquat.StatusRunning {
		s.workers.cancel(id, errCancelled)
	}
	return out, err
}

// cancelQueued ends a request that never started: it has events, but no message.
func cancelQueued(tx *store.Tx, q *store.Request) error {
	h, err := tx.Head(q.SessionID)
	if err != nil {
		return err
	}
	var stored storedSend
	if err := json.Unmarshal(q.Send, &stored); err != nil {
		return fmt.Errorf("read send of request %s: %w", q.RequestID, err)
	}
	err = publish(tx, &h, q,
		loquat.Event{Type: loquat.RequestStarted, Stream: stored.Stream},
		loquat.Event{Type: loquat.RequestCancelled},
		loquat.Event{Type: loquat.RequestCompleted})
	if err != nil {
		return err
	}
	return tx.EndRequest(q, loquat.StatusCancelled, "")
}
