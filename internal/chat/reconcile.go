package chat

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"loquat"
	"loquat/internal/store"
)

// The failures of requests whose process died. Of several nodes, one that lost its connection
// to the database is as good as dead.
var (
	errCrashed   = errors.New("the server stopped unexpectedly while the request ran")
	errAbandoned = errors.New("the server that ran the request stopped unexpectedly, or could not reach the database")
)

// reconcile ends the requests that ran when the last process of this node died, and those of
// nodes that are gone. It removes unfinished copies of sessions and the sessions that were not to be
// kept, and starts queued sends. After a failure it can be called again; seen has the sessions that
// are done.
func (s *Requests) reconcile(ctx context.Context, seen map[string]bool) error {
	ctx = store.WhileHeld(ctx)
	if err := s.dropDrafts(ctx); err != nil {
		return err
	}
	if err := s.dropDiscarded(ctx); err != nil {
		return err
	}
	left, err := store.Read(ctx, s.store, s.leftBehind)
	if err != nil {
		return err
	}
	// Together they share few commits, however many a process has left.
	var all errgroup.Group
	all.SetLimit(takeUpAtOnce)
	var mu sync.Mutex // guards seen while they run
	var down atomic.Bool
	for _, q := range firstOfEach(left, seen) {
		all.Go(func() error {
			if down.Load() {
				return nil
			}
			next, err := s.reconcileSession(ctx, q)
			if loquat.CodeOf(err) == loquat.CodeUnavailable {
				down.Store(true)
				return err
			}
			mu.Lock()
			seen[q.SessionID] = true
			mu.Unlock()
			if err != nil && !errors.Is(err, store.ErrFenced) { // continue with the other sessions
				s.log.Error("could not reconcile a session", "session_id", q.SessionID, "request_id", q.RequestID, "error", err)
			}
			s.workers.start(next)
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	if n := len(seen); n > 0 {
		s.log.Info("ended or restarted the requests that the last run left", "sessions", n)
	}
	return nil
}

// firstOfEach returns the first request of each session that is not done.
func firstOfEach(left []store.Request, done map[string]bool) (out []store.Request) {
	found := map[string]bool{}
	for _, q := range left {
		if !done[q.SessionID] && !found[q.SessionID] {
			found[q.SessionID] = true
			out = append(out, q)
		}
	}
	return out
}

// leftBehind returns what reconcile ends or starts. No request runs in this process yet, so all
// that seem to run on this node are left from before.
func (s *Requests) leftBehind(r *store.Reader) ([]store.Request, error) {
	if !s.store.Shared() {
		return r.Unended(nil)
	}
	left, err := r.Orphans()
	if err != nil {
		return nil, err
	}
	own, err := r.OwnRunning()
	if err != nil {
		return nil, err
	}
	for id := range own {
		q, err := r.Request(id)
		if err != nil {
			return nil, err
		}
		left = append(left, q)
	}
	return left, nil
}

// draftAge is the age from which the copy of a session counts as unfinished if several nodes
// copy.
const draftAge = time.Hour

// dropDrafts removes unfinished copies of sessions.
func (s *Requests) dropDrafts(ctx context.Context) error {
	return s.store.Update(ctx, func(tx *store.Tx) error {
		before := tx.Now.Add(time.Millisecond)
		if s.store.Shared() {
			before = tx.Now.Add(-draftAge)
		}
		return tx.DropDrafts(before)
	})
}

// Reading the events of a large request may need more memory than there is, and the system then
// kills the server. So while a server reads such a request, the owner in its row has the server's
// name and the number of servers that have tried.
const (
	reconcilingOwner = "taking up: "
	largeStep        = 4 << 20 // bytes of events from which a server is counted in the row
	maxReconciles    = 2       // servers that may be killed before the request is ended without its events
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
			if first, ok, err := tx.FirstUnended(h); err != nil || !ok || first.Status != loquat.StatusQueued {
				return nil, err // another node was faster
			}
			return s.startNext(tx, &h)
		})
	}
	died := errCrashed
	if s.store.Shared() {
		died = errAbandoned
	}
	end := func(by func(*store.Tx, *store.Request, error) (*store.Request, error), failure error) (*store.Request, error) {
		return store.Do(ctx, s.store, func(tx *store.Tx) (*store.Request, error) {
			row, err := tx.FenceRequest(q.RequestID, q.Owner)
			if err != nil {
				return nil, err
			}
			return by(tx, &row, failure)
		})
	}
	size, err := store.Read(ctx, s.store, func(r *store.Reader) (int64, error) { return r.SizeOfRequestEvents(q, q.ClosedUpTo) })
	if err != nil {
		return nil, err
	}
	if size >= largeStep { // one at a time, so that no other is blamed if the system kills this server
		s.large.Lock()
		defer s.large.Unlock()
		if s.stopping.Load() {
			return nil, errStopping
		}
	}
	former := q.Owner
	survivable, err := s.noteReconcile(ctx, &q, size)
	if err != nil {
		return nil, err
	}
	if !survivable {
		s.log.Error("a request ends without its streamed text: the last starts did not survive reading it", "session_id", q.SessionID, "request_id", q.RequestID, "bytes", size)
		return end(s.endWithout, loquat.Errorf(loquat.CodeInternal, "%s; the %d bytes that it had streamed are lost, because %d starts of the server did not survive reading them (limits.max_response_bytes bounds a reply)", died, size, maxReconciles))
	}
	next, err = end(s.endRequest, died)
	switch {
	case err == nil:
		s.noted.Delete(q.RequestID)
	case ctx.Err() != nil || errors.Is(err, store.ErrFenced):
	case loquat.CodeOf(err) == loquat.CodeUnavailable: // the store failed, not this server
		_ = s.store.Update(ctx, func(tx *store.Tx) error { return s.changeOwner(tx, &q, former) })
	default:
		s.log.Error("a request ends without its streamed text: the text cannot be read", "session_id", q.SessionID, "request_id", q.RequestID, "error", err)
		return end(s.endWithout, loquat.Errorf(loquat.CodeInternal, "%s; its streamed text cannot be read and is lost", died))
	}
	return next, err
}

// dropDiscarded deletes the sessions that were not to be kept and whose process has ended. One that cannot
// be deleted keeps nothing else from being done.
func (s *Requests) dropDiscarded(ctx context.Context) error {
	ids, err := store.Read(ctx, s.store, (*store.Reader).Discarded)
	if err != nil {
		return err
	}
	var all errgroup.Group
	all.SetLimit(takeUpAtOnce)
	for _, id := range ids {
		all.Go(func() error {
			switch err := s.deleteSession(ctx, Call{}, id); {
			case err == nil, loquat.CodeOf(err) == loquat.CodeNotFound: // another node was faster
			case loquat.CodeOf(err) == loquat.CodeUnavailable, ctx.Err() != nil:
				return err
			default:
				s.log.Error("a session that was not to be kept could not be deleted", "session_id", id, "error", err)
			}
			return nil
		})
	}
	return all.Wait()
}

// noteReconcile counts this server in the row of a request that has streamed much, which also
// keeps other nodes from reading the request meanwhile. It reports whether few enough earlier servers
// were killed.
func (s *Requests) noteReconcile(ctx context.Context, q *store.Request, size int64) (survivable bool, err error) {
	if size < largeStep {
		return true, nil
	}
	if _, counted := s.noted.Load(q.RequestID); counted { // by an earlier attempt of this process
		return true, nil
	}
	tried := 0
	if _, n, ok := strings.Cut(q.Owner, reconcilingOwner); ok {
		tried, _ = strconv.Atoi(n)
	}
	if tried >= maxReconciles {
		return false, nil
	}
	err = s.store.Update(ctx, func(tx *store.Tx) error {
		return s.changeOwner(tx, q, s.store.Owner()+" "+reconcilingOwner+strconv.Itoa(tried+1))
	})
	if err == nil {
		s.noted.Store(q.RequestID, true)
	}
	return true, err
}

// changeOwner changes the owner of a request, unless another node has changed or ended the
// request.
func (s *Requests) changeOwner(tx *store.Tx, q *store.Request, owner string) error {
	row, err := tx.FenceRequest(q.RequestID, q.Owner)
	if err != nil {
		return err
	}
	if err := tx.SetOwner(&row, owner); err != nil {
		return err
	}
	*q = row
	return nil
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
