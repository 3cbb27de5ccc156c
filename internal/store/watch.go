package store

import (
	"context"
	"slices"

	"loquat"
)

// Watch is a follower's subscription to the events of a filter. While it lasts, the tail knows the
// newest event of the sessions, and its channel is
// signalled after each commit that has events of them. A signal means only that there may be more to
// read. The channel holds at most one signal.
type Watch struct {
	store  *Store
	filter Filter
	parts  []*part // that have its events
	c      chan struct{}
}

// Watch subscribes to the events of a filter, whose request does not count. A caller that subscribes before it
// reads misses no event. Waking a Watch takes no lock.
func (s *Store) Watch(f Filter) *Watch {
	f.RequestID = ""
	w := &Watch{store: s, filter: f, c: make(chan struct{}, 1)}
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

// Newest returns an event id above which the sessions have no event. A follower that has read up
// to it has nothing to read until the next signal.
func (w *Watch) Newest() loquat.EventID {
	newest := int64(0)
	for _, p := range w.parts {
		newest = max(newest, p.newest.Load())
	}
	return loquat.EventID(newest)
}

// Events is Store.Events for the sessions of the watch, and for a request of its session unless
// requestID is empty. It appends to buf[:0].
func (w *Watch) Events(ctx context.Context, buf []loquat.Record, since loquat.EventID, requestID string, bounds Bounds) ([]loquat.Record, error) {
	f := w.filter
	f.RequestID = requestID
	return w.store.read(ctx, w.parts, buf[:0], since, f, bounds)
}

// Stop ends the subscription.
func (w *Watch) Stop() { w.store.tail.leave(w) }

// WakeAll signals all watches.
func (s *Store) WakeAll() {
	for _, w := range s.tail.watches() {
		w.Wake()
	}
}

// join adds a watch to the parts of its filter.
func (t *tail) join(w *Watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.parts = t.partsOf(w.filter)
	for _, p := range w.parts {
		// wake may read the list meanwhile: it does not look beyond the length that it loaded.
		watches := append(p.followers(), w)
		p.watches.Store(&watches)
	}
}

// partsOf returns the parts that have the events of a filter. The caller holds mu.
func (t *tail) partsOf(f Filter) (parts []*part) {
	switch {
	case f.Among == nil && f.part() != "":
		return []*part{t.part(f.part())}
	case f.Among == nil:
		return []*part{t.all}
	}
	for _, id := range f.Among.Sessions {
		parts = append(parts, t.part(id))
	}
	switch {
	case f.Among.List && f.Among.User != "":
		parts = append(parts, t.part(listPart+f.Among.User))
	case f.Among.List:
		parts = append(parts, t.list)
	}
	return parts
}

// leave removes a watch, and the parts that nothing else needs.
func (t *tail) leave(w *Watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range w.parts {
		old := p.followers()
		i := slices.Index(old, w)
		if i < 0 {
			continue
		}
		left := make([]*Watch, 0, len(old)-1)
		left = append(append(left, old[:i]...), old[i+1:]...)
		p.watches.Store(&left)
		if p.name != "" && p.isUnused(loquat.EventID(t.all.floor.Load())) && t.sessions[p.name] == p {
			delete(t.sessions, p.name)
		}
	}
}

// watches returns all watches.
func (t *tail) watches() []*Watch {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := slices.Concat(t.all.followers(), t.list.followers())
	for _, p := range t.sessions {
		out = append(out, p.followers()...)
	}
	return out
}
