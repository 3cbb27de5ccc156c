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

// The rules for a request that a start may not survive. While a start takes up a request
// that has streamed much, the request's owner says so, with the number of such starts.
const (
	takingUp   = "taking up: "
	largeStep  = 4 << 20 // bytes of events from which a start notes that it takes them up
	maxTakeUps = 2       // starts that may die before the request ends without its events
)

// takeUp brings one session back to work: q is its running request, or, when none
// ran, the first that waits.
func (s *Service) takeUp(ctx context.Context, q store.Request) (next *store.Request, err error) {
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
	size, survivable, err := s.noteTakeUp(ctx, q)
	if err != nil {
		return nil, err
	}
	if !survivable {
		s.log.Error("a request ends without what it streamed: the last starts did not survive taking it up", "session_id", q.SessionID, "request_id", q.RequestID, "bytes", size)
		return end(s.endWithout, loquat.Errorf(loquat.CodeInternal, "%s; the %d bytes that it had streamed are lost, because %d starts of the server did not survive reading them (limits.max_response_bytes bounds a reply)", errCrashed, size, maxTakeUps))
	}
	next, err = end(s.endIn, errCrashed)
	switch {
	case err == nil || ctx.Err() != nil:
	case loquat.CodeOf(err) == loquat.CodeUnavailable: // this start survived it
		_ = s.store.Update(ctx, func(tx *store.Tx) error { return tx.SetOwner(&q, q.Owner) })
	default:
		s.log.Error("a request ends without what it streamed: that cannot be read", "session_id", q.SessionID, "request_id", q.RequestID, "error", err)
		return end(s.endWithout, loquat.Errorf(loquat.CodeInternal, "%s; what it had streamed cannot be read and is lost", errCrashed))
	}
	return next, err
}

// noteTakeUp notes that a start takes up a request that has streamed much, and reports
// how much, and whether the starts before survived that.
func (s *Service) noteTakeUp(ctx context.Context, q store.Request) (size int64, survivable bool, err error) {
	size, err = store.Read(ctx, s.store, func(r *store.Reader) (int64, error) { return r.SizeOfRequestEvents(q, q.Mark) })
	if err != nil || size < largeStep || s.noted[q.RequestID] { // noted, when the store could not write before
		return size, true, err
	}
	died := 0
	if n, ok := strings.CutPrefix(q.Owner, takingUp); ok {
		died, _ = strconv.Atoi(n)
	}
	if died >= maxTakeUps {
		return size, false, nil
	}
	err = s.store.Update(ctx, func(tx *store.Tx) error { return tx.SetOwner(&q, takingUp+strconv.Itoa(died+1)) })
	s.noted[q.RequestID] = err == nil
	return size, true, err
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
