package chat

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"loquat"
	"loquat/internal/store"
)

// lookPause is the mean pause between two looks at the requests of a shared log. Only tests
// change it.
var lookPause = time.Second

// takeUpAtOnce is how many requests a look takes up at the same time.
const takeUpAtOnce = 64

// lookLoop looks until the service stops. A look finds what signals between nodes did not say:
// it ends the requests of nodes that are gone, deletes their sessions that were not to be kept,
// starts queued sends that nothing starts, and stops workers whose request was cancelled or ended
// elsewhere.
func (s *Requests) lookLoop() {
	for {
		// The nodes do not look all at once, so most orphans meet only one of them.
		pause := lookPause*3/4 + rand.N(lookPause/2)
		select {
		case <-s.life.Done():
			return
		case <-time.After(pause):
		}
		if err := s.look(s.life); err != nil && s.life.Err() == nil && loquat.CodeOf(err) != loquat.CodeUnavailable {
			s.log.Error("could not look at the requests of all nodes", "error", err)
		}
	}
}

// look looks once. A session that cannot be deleted does not keep requests from being ended.
func (s *Requests) look(ctx context.Context) error {
	return errors.Join(s.dropDiscarded(ctx), s.lookAtRequests(ctx))
}

func (s *Requests) lookAtRequests(ctx context.Context) error {
	before := s.workers.ids() // before the read, which then knows all of them
	var orphans []store.Request
	var own map[string]bool
	err := s.store.View(ctx, func(r *store.Reader) (err error) {
		if orphans, err = r.Orphans(); err != nil {
			return err
		}
		own, err = r.OwnRunning()
		return err
	})
	if err != nil {
		return err
	}
	for id := range before {
		switch cancelled, runs := own[id]; {
		case !runs:
			s.workers.cancel(id, store.ErrFenced)
		case cancelled:
			s.workers.cancel(id, errCancelled)
		}
	}
	unowned, err := s.withoutWorker(ctx, own)
	if err != nil {
		return err
	}
	// Together they share few commits, however many a node has left. The order differs between
	// the nodes, which mostly look for the same.
	left := slices.Concat(orphans, unowned)
	rand.Shuffle(len(left), func(i, k int) { left[i], left[k] = left[k], left[i] })
	var all errgroup.Group
	all.SetLimit(takeUpAtOnce)
	for _, q := range left {
		all.Go(func() error { return s.takeUp(ctx, q) })
	}
	return all.Wait()
}

// withoutWorker returns the requests of this node that had no worker at this look and the last
// one: their worker could not write their end. A worker that is about to begin is not missing
// for so long.
func (s *Requests) withoutWorker(ctx context.Context, own map[string]bool) (out []store.Request, err error) {
	unowned, running := maps.Clone(own), s.workers.ids()
	maps.DeleteFunc(unowned, func(id string, _ bool) bool { return running[id] })
	for id := range unowned {
		if _, twice := s.unowned[id]; !twice {
			continue
		}
		q, err := s.row(ctx, id)
		if loquat.CodeOf(err) == loquat.CodeNotFound { // its session was deleted
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, q)
	}
	s.unowned = unowned
	return out, nil
}

// takeUp ends a request of a node that is gone, or starts a queued one. Other nodes may try the
// same; one of them succeeds.
func (s *Requests) takeUp(ctx context.Context, q store.Request) error {
	s.starting.RLock() // the service does not begin to stop meanwhile
	defer s.starting.RUnlock()
	if q.Status == loquat.StatusQueued && s.workers.isDraining() {
		return nil
	}
	next, err := s.reconcileSession(ctx, q)
	s.workers.start(next)
	switch code := loquat.CodeOf(err); {
	case errors.Is(err, store.ErrFenced) || code == loquat.CodeNotFound: // ended elsewhere, or deleted
	case code == loquat.CodeUnavailable:
		return err
	case err != nil: // continue with the others
		s.log.Error("could not take up a request", "session_id", q.SessionID, "request_id", q.RequestID, "error", err)
	case q.Status == loquat.StatusRunning:
		s.log.Warn("ended the request of a server that is gone", "session_id", q.SessionID, "request_id", q.RequestID)
	}
	return nil
}
