package chat

import (
	"context"
	"sync"
	"sync/atomic"

	"loquat"
	"loquat/internal/store"
)

// Requests starts, runs, cancels and ends requests.
type Requests struct {
	dependencies
	assets *Assets

	life    context.Context // ends when the service has to stop at once
	noted   sync.Map        // request_ids whose row counts this process
	large   sync.Mutex      // held while a request that has streamed much is ended after a crash
	unowned map[string]bool // requests of this node that had no worker at the last look; used only by look

	reconciling atomic.Bool  // reconcile has not succeeded yet
	stopping    atomic.Bool  // Stop waits for starting
	starting    sync.RWMutex // held shared from the decision to start a request until it is launched
	workers     workers
	recent      *recentMessages
	titles      *titles
	other       *otherUsage
}

// Running returns how many requests run in this process.
func (s *Requests) Running() int { return s.workers.count() }

// Request returns the present state of a request.
func (s *Requests) Request(ctx context.Context, id string) (loquat.Request, error) {
	q, err := s.row(ctx, id)
	return q.Request, err
}

// row returns the row of a request.
func (s *Requests) row(ctx context.Context, id string) (store.Request, error) {
	return store.Read(ctx, s.store, func(r *store.Reader) (store.Request, error) { return r.Request(id) })
}

// Cancel ends a queued request at once. For a running request it makes request_cancelled the
// only possible end. It does nothing to a request that has ended.
func (s *Requests) Cancel(ctx context.Context, call Call, id string) (Answer[loquat.CancelResult], error) {
	out, err := change(ctx, s.store, call, func(tx *store.Tx) (out Answer[loquat.CancelResult], err error) {
		q, err := tx.Request(id)
		if err != nil {
			return out, err
		}
		if !q.Status.Ended() {
			h, err := tx.Head(q.SessionID)
			if err == nil {
				err = call.IfMatch.check(h)
			}
			if err != nil {
				return out, err
			}
		}
		out.Accepted = true
		switch {
		case q.Status == loquat.StatusQueued:
			err = s.cancelQueued(tx, &q)
		case q.Status.Ended():
			out.Accepted = false
		case !q.Cancelled:
			err = flagCancelled(tx, &q)
		}
		out.Body = loquat.CancelResult{RequestID: id, Status: q.Status}
		return out, err
	})
	if err == nil && out.Body.Status == loquat.StatusRunning {
		s.workers.cancel(id, errCancelled)
	}
	return out, err
}

// The topics of signals between the nodes of a log. The payload is a request_id.
const (
	signalCancelled = "cancelled" // a cancel of a running request was acknowledged
	signalDeleted   = "deleted"   // the session of a running request was deleted
)

// flagCancelled makes request_cancelled the only possible end of a running request. The node
// that runs the request is signalled.
func flagCancelled(tx *store.Tx, q *store.Request) error {
	tx.Signal(signalCancelled, q.RequestID)
	return tx.FlagCancelled(q)
}

// listen makes the signals of other nodes, and the loss of this node's hold of the log, end
// workers.
func (s *Requests) listen() {
	s.store.OnSignal(signalCancelled, func(id string) { s.workers.cancel(id, errCancelled) })
	s.store.OnSignal(signalDeleted, func(id string) { s.workers.cancel(id, store.ErrFenced) })
	s.store.OnLeave(func() { s.workers.cancelAll(store.ErrFenced) })
}

// checkOwner returns store.ErrFenced unless a request belongs to this node's present hold of the
// log. Transactions of a request call it, because the node may have lost its hold and registered
// again since the request started.
func (s *Requests) checkOwner(q store.Request) error {
	if q.Owner != s.store.Owner() {
		return store.ErrFenced
	}
	return nil
}

// cancelQueued ends a request that never started: it has events, but no message.
func (s *Requests) cancelQueued(tx *store.Tx, q *store.Request) error {
	h, err := tx.Head(q.SessionID)
	if err != nil {
		return err
	}
	stored, err := sendOf(*q)
	if err != nil {
		return err
	}
	err = publish(tx, &h, q,
		loquat.Event{Type: loquat.RequestStarted, Stream: stored.Stream},
		loquat.Event{Type: loquat.RequestCancelled},
		loquat.Event{Type: loquat.RequestCompleted})
	if err != nil {
		return err
	}
	if err := s.finish(tx, h, q, loquat.StatusCancelled, ""); err != nil {
		return err
	}
	return publishQueue(tx, &h)
}
