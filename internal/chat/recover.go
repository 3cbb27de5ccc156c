package chat

import (
	"context"
	"errors"
	"time"

	"loquat"
	"loquat/internal/store"
)

// errCrashed is the cause for which a request ends whose process died.
var errCrashed = errors.New("the server stopped unexpectedly while the request ran")

// recover ends what was running when the last process died, drops what it was copying,
// and starts what waits.
// It can be called again after it failed: sessions that were taken up are in seen.
func (s *Service) recover(ctx context.Context, seen map[string]bool) error {
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
		next, err := s.takeUp(ctx, q)
		if loquat.CodeOf(err) == loquat.CodeUnavailable {
			return err
		}
		seen[q.SessionID] = true
		if err != nil { // one session that cannot be taken up is no reason to serve none
			s.log.Error("could not take up a session", "session_id", q.SessionID, "request_id", q.RequestID, "error", err)
		}
		s.launch(next)
	}
	if n := len(seen); n > 0 {
		s.log.Info("took up what the last run left", "sessions", n)
	}
	return nil
}

// takeUp brings one session back to work: q is its running request, or, when none
// ran, the first that waits.
func (s *Service) takeUp(ctx context.Context, q store.Request) (next *store.Request, err error) {
	return store.Do(ctx, s.store, func(tx *store.Tx) (*store.Request, error) {
		row, err := tx.Request(q.RequestID)
		if err != nil {
			return nil, err
		}
		if row.Status == loquat.StatusRunning {
			return s.endIn(tx, &row, errCrashed)
		}
		h, err := tx.Head(q.SessionID)
		if err != nil {
			return nil, err
		}
		return s.startNext(tx, &h)
	})
}

// The pause between two attempts to take up what the last process left.
const recoverPause = time.Second

// recoverLater takes up what the last process left once the store can write. Until then
// nothing else is written.
func (s *Service) recoverLater(seen map[string]bool) {
	for {
		select {
		case <-s.life.Done():
			return
		case <-time.After(recoverPause):
		}
		s.starting.RLock() // the service does not begin to stop meanwhile
		if s.isDraining() {
			s.starting.RUnlock()
			return
		}
		err := s.recover(s.life, seen)
		s.starting.RUnlock()
		if err == nil {
			break
		}
		if loquat.CodeOf(err) != loquat.CodeUnavailable {
			s.log.Error("could not take up what the last run left", "error", err)
			break
		}
	}
	s.recovering.Store(false)
	s.store.Release()
	s.sweepLoop()
}
