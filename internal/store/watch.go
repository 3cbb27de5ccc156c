package store

import (
	"context"
	"slices"

	"loquat"
)

// Watch is a follower's subscription to the events of a session, or of all sessions. While it
// lasts, the tail knows the newest event of the session, and its channel is signalled after
// each commit that has events of the session. A signal means only that there may be more to
// read. The channel holds at most one signal.
type Watch struct {
	store   *Store
	session string
	part    *part
	c       chan struct{}
}

// Watch subscribes to events of a session, or of all sessions if sessionID is empty. A caller
// that subscribes before it reads misses no event. Waking a Watch takes no lock.
func (s *Store) Watch(sessionID string) *Watch {
	w := &Watch{store: s, session: sessionID, c: make(chan struct{}, 1)}
	s.tail.join(w)
	return w
}

// C returns the channel that receives a signal after matching commits.
func (w *Watch) C() <-chan struct{} { return w.c }

// Wake signals the channel. Callers use it to end a wait for other reasons than an event.
func (w *Watch) Wake() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// Newest returns an event id above which the session has no event. A follower that has read up
// to it has nothing to read until the next signal.
func (w *Watch) Newest() loquat.EventID { return loquat.EventID(w.part.newest.Load()) }

// Events is Store.Events for the session of the watch, and for a request of it unless
// requestID is empty. It appends to buf[:0].
func (w *Watch) Events(ctx context.Context, buf []loquat.Record, since loquat.EventID, requestID string, bounds Bounds) ([]loquat.Record, error) {
	return w.store.read(ctx, w.part, buf[:0], since, Filter{SessionID: w.session, RequestID: requestID}, bounds)
}

// Stop ends the subscription.
func (w *Watch) Stop() { w.store.tail.leave(w) }

// WakeAll signals all watches.
func (s *Store) WakeAll() {
	for _, w := range s.tail.watches() {
		w.Wake()
	}
}

// join adds a watch to the part of its session.
func (t *tail) join(w *Watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.part = t.all
	if w.session != "" {
		w.part = t.part(w.session)
	}
	// wake may read the list meanwhile: it does not look beyond the length that it loaded.
	watches := append(w.part.followers(), w)
	w.part.watches.Store(&watches)
}

// leave removes a watch, and the part if nothing else needs it.
func (t *tail) leave(w *Watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := w.part.followers()
	i := slices.Index(old, w)
	if i < 0 {
		return
	}
	left := make([]*Watch, 0, len(old)-1)
	left = append(append(left, old[:i]...), old[i+1:]...)
	w.part.watches.Store(&left)
	if w.session != "" && w.part.isUnused(loquat.EventID(t.all.floor.Load())) && t.sessions[w.session] == w.part {
		delete(t.sessions, w.session)
	}
}

// watches returns all watches.
func (t *tail) watches() []*Watch {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := slices.Clone(t.all.followers())
	for _, p := range t.sessions {
		out = append(out, p.followers()...)
	}
	return out
}
