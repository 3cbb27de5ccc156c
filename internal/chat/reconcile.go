package chat

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"loquat"
	"loquat/internal/store"
)

// errCrashed is the failure of a request whose process died.
var errCrashed = errors.New("the server stopped unexpectedly while the request ran")

// reconcile ends the requests that ran when the last process died, removes unfinished copies of
// sessions, and starts queued sends. After a failure it can be called again; seen has the
// sessions that are done.
func (s *Requests) reconcile(ctx context.Context, seen map[string]bool) error {
	ctx = store.WhileHeld(ctx)
	if err := s.store.Update(ctx, (*store.Tx).DropDrafts); err != nil {
		return err
	}
	unended, err := store.Read(ctx, s.store, func(r *store.Reader) ([]store.Request, error) { return r.Unended(nil) })
	if err != nil {
		return err
	}
	for _, q := range unended {
		if seen[q.SessionID] {
			continue
		}
		next, err := s.reconcileSession(ctx, q)
		if loquat.CodeOf(err) == loquat.CodeUnavailable {
			return err
		}
		seen[q.SessionID] = true
		if err != nil { // continue with the other sessions
			s.log.Error("could not reconcile a session", "session_id", q.SessionID, "request_id", q.RequestID, "error", err)
		}
		s.workers.start(next)
	}
	if n := len(seen); n > 0 {
		s.log.Info("ended or restarted the requests that the last run left", "sessions", n)
	}
	return nil
}

// Reading the events of a large request may need more memory than there is, and the system then
// kills the server. So while a start reads such a request, the owner in its row has the number
// of starts that have tried.
const (
	reconcilingOwner = "taking up: "
	largeStep        = 4 << 20 // bytes of events from which a start is counted in the row
	maxReconciles    = 2       // starts that may be killed before the request is ended without its events
)

// reconcileSession ends the running request q of a session, or starts q when it is the
// first that is queued.
func (s *Requests) reconcileSession(ctx context.Context, q store.Request) (next *store.Request, err error) {
	if q.Status != loquat.StatusRunning {
		return store.Do(ctx, s.store, func(tx *store.Tx) (*store.Request, error) {
			h, err := tx.Head(q.SessionID)
			if err != nil {
				return nil, err
			}
			return s.startNext(tx, &h)
		})
	}
	end := func(by func(*store.Tx, *store.Request, error) (*store.Request, error), failure error) (*store.Request, error) {
		return store.Do(ctx, s.store, func(tx *store.Tx) (*store.Request, error) {
			row, err := tx.Request(q.RequestID)
			if err != nil {
				return nil, err
			}
			return by(tx, &row, failure)
		})
	}
	size, survivable, err := s.noteReconcile(ctx, q)
	if err != nil {
		return nil, err
	}
	if !survivable {
		s.log.Error("a request ends without its streamed text: the last starts did not survive reading it", "session_id", q.SessionID, "request_id", q.RequestID, "bytes", size)
		return end(s.endWithout, loquat.Errorf(loquat.CodeInternal, "%s; the %d bytes that it had streamed are lost, because %d starts of the server did not survive reading them (limits.max_response_bytes bounds a reply)", errCrashed, size, maxReconciles))
	}
	next, err = end(s.endRequest, errCrashed)
	switch {
	case err == nil || ctx.Err() != nil:
	case loquat.CodeOf(err) == loquat.CodeUnavailable: // the store failed, not this start
		_ = s.store.Update(ctx, func(tx *store.Tx) error { return tx.SetOwner(&q, q.Owner) })
	default:
		s.log.Error("a request ends without its streamed text: the text cannot be read", "session_id", q.SessionID, "request_id", q.RequestID, "error", err)
		return end(s.endWithout, loquat.Errorf(loquat.CodeInternal, "%s; its streamed text cannot be read and is lost", errCrashed))
	}
	return next, err
}

// noteReconcile counts this start in the row of a request that has streamed much. It returns
// the bytes of its events, and whether too many earlier starts were killed.
func (s *Requests) noteReconcile(ctx context.Context, q store.Request) (size int64, survivable bool, err error) {
	size, err = store.Read(ctx, s.store, func(r *store.Reader) (int64, error) { return r.SizeOfRequestEvents(q, q.ClosedUpTo) })
	if err != nil || size < largeStep || s.noted[q.RequestID] { // already counted by an earlier attempt of this start
		return size, true, err
	}
	died := 0
	if n, ok := strings.CutPrefix(q.Owner, reconcilingOwner); ok {
		died, _ = strconv.Atoi(n)
	}
	if died >= maxReconciles {
		return size, false, nil
	}
	err = s.store.Update(ctx, func(tx *store.Tx) error { return tx.SetOwner(&q, reconcilingOwner+strconv.Itoa(died+1)) })
	s.noted[q.RequestID] = err == nil
	return size, true, err
}

// reconcilePause is the pause between two attempts of reconcileLater.
const reconcilePause = time.Second

// reconcileLater reconciles as soon as the store can write. Until then nothing else is
// written. It returns false when the service stops before.
func (s *Requests) reconcileLater(seen map[string]bool) (done bool) {
	for {
		select {
		case <-s.life.Done():
			return false
		case <-time.After(reconcilePause):
		}
		s.starting.RLock() // the service does not begin to stop meanwhile
		if s.workers.isDraining() {
			s.starting.RUnlock()
			return false
		}
		err := s.reconcile(s.life, seen)
		s.starting.RUnlock()
		if err == nil {
			break
		}
		if loquat.CodeOf(err) != loquat.CodeUnavailable {
			s.log.Error("could not end the requests that the last run left", "error", err)
			break
		}
	}
	s.reconciling.Store(false)
	s.store.Release()
	return true
}
