package store

import (
	"maps"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"loquat"
)

// Bounds of the tail. tailEvents is a number of events; tailBytes is the size of their bodies.
const (
	tailEvents = 1 << 14
	tailBytes  = 16 << 20
)

// tail is the newest part of the log in memory: the newest events, the highest id, the
// followers to wake, and how far retention has removed events. It is only a cache, because
// everything in it is on disk. Only add, announceRemoval and finishRemoval change it.
type tail struct {
	removing, removed atomic.Int64 // newest event that retention is removing; newest that it has removed

	mu      sync.RWMutex
	floor   loquat.EventID // records has every committed event above floor, except those of deleted sessions
	last    loquat.EventID // highest event id that was committed
	records []loquat.Record
	deleted map[string]loquat.EventID // sessions whose session_deleted is in records
	bytes   int
	watches map[string]map[*Watch]struct{} // by session; "" is all sessions
}

// newTail returns an empty tail of a log that ends at last. Retention has removed events up to
// gone.
func newTail(last, gone loquat.EventID) *tail {
	t := &tail{floor: last, last: last, deleted: map[string]loquat.EventID{}, watches: map[string]map[*Watch]struct{}{}}
	t.announceRemoval(gone)
	t.finishRemoval()
	return t
}

// announceRemoval records that retention is about to remove events up to id. It must be called
// before the removal: meanwhile readers ask the database.
func (t *tail) announceRemoval(id loquat.EventID) {
	t.removing.Store(max(t.removing.Load(), int64(id)))
}

// finishRemoval records that the announced removal is on disk.
func (t *tail) finishRemoval() { t.removed.Store(t.removing.Load()) }

// newestRemoved returns the newest announced event and whether its removal is finished.
func (t *tail) newestRemoved() (id loquat.EventID, settled bool) {
	done := t.removed.Load() // read first, so that it is never ahead of removing
	id = loquat.EventID(t.removing.Load())
	return id, done == int64(id)
}

// end returns the highest committed event id. Events up to it can be read.
func (t *tail) end() loquat.EventID {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.last
}

// add appends the events of a commit, up to last, and wakes the followers that watch for them.
func (t *tail) add(last loquat.EventID, published []loquat.Record) {
	if len(published) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = last
	deleted := t.forget(published)
	for _, r := range published {
		if r.Type == loquat.SessionDeleted {
			t.deleted[r.SessionID] = r.ID
		} else if deleted[r.SessionID] {
			continue
		}
		t.records = append(t.records, r)
		t.bytes += len(r.Body)
	}
	t.trim()
	t.wake(published)
}

// forget removes the events of sessions that published deletes, and returns the ids of these
// sessions.
func (t *tail) forget(published []loquat.Record) (deleted map[string]bool) {
	for _, r := range published {
		if r.Type == loquat.SessionDeleted {
			if deleted == nil {
				deleted = map[string]bool{}
			}
			deleted[r.SessionID] = true
		}
	}
	if deleted == nil {
		return nil
	}
	kept := make([]loquat.Record, 0, len(t.records))
	for _, r := range t.records {
		if deleted[r.SessionID] {
			t.bytes -= len(r.Body)
			continue
		}
		kept = append(kept, r)
	}
	t.records = kept
	return deleted
}

// trim drops the older half when a bound is exceeded. Dropping many events at once spreads the
// cost of the copy.
func (t *tail) trim() {
	if len(t.records) <= tailEvents && t.bytes <= tailBytes {
		return
	}
	drop := 0
	for drop < len(t.records) && (len(t.records)-drop > tailEvents/2 || t.bytes > tailBytes/2) {
		t.bytes -= len(t.records[drop].Body)
		drop++
	}
	t.floor = t.records[drop-1].ID
	t.records = slices.Clone(t.records[drop:])
	maps.DeleteFunc(t.deleted, func(_ string, id loquat.EventID) bool { return id <= t.floor })
}

func (t *tail) wake(published []loquat.Record) {
	signal := func(session string) {
		for w := range t.watches[session] {
			select {
			case w.c <- struct{}{}:
			default:
			}
		}
	}
	signal("")
	previous := ""
	for _, r := range published {
		if r.SessionID != previous {
			signal(r.SessionID)
			previous = r.SessionID
		}
	}
}

// since returns the matching events above an id, up to the bounds of a window. It returns
// false if the tail does not reach back to the id.
func (t *tail) since(since loquat.EventID, f Filter, b bound) ([]loquat.Record, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if since < t.floor {
		return nil, false
	}
	from := sort.Search(len(t.records), func(i int) bool { return t.records[i].ID > since })
	var out []loquat.Record
	for _, r := range t.records[from:] {
		if !f.matches(r) {
			continue
		}
		if !b.admits(r) {
			break
		}
		out = append(out, r)
	}
	return out, true
}

// existsSince reports whether the tail proves that a session was not deleted above an id. It
// returns false if the session was deleted or the tail does not reach back to the id.
func (t *tail) existsSince(session string, since loquat.EventID) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return since >= t.floor && t.deleted[session] <= since
}

// ExistsSince reports, from memory, whether a session that existed when the log ended at since
// still exists. If it returns false, the caller must ask the database.
func (s *Store) ExistsSince(sessionID string, since loquat.EventID) bool {
	return s.tail.existsSince(sessionID, since)
}

// Watch is a follower's subscription to wake-ups. Its channel holds at most one signal. A
// signal means only that there may be more to read.
type Watch struct {
	t       *tail
	session string
	c       chan struct{}
}

// Watch subscribes to events of a session, or of all sessions if sessionID is empty. A caller
// that subscribes before it reads misses no event.
func (s *Store) Watch(sessionID string) *Watch {
	w := &Watch{t: s.tail, session: sessionID, c: make(chan struct{}, 1)}
	s.tail.mu.Lock()
	defer s.tail.mu.Unlock()
	if s.tail.watches[sessionID] == nil {
		s.tail.watches[sessionID] = map[*Watch]struct{}{}
	}
	s.tail.watches[sessionID][w] = struct{}{}
	return w
}

// C returns the channel that receives a signal after matching commits.
func (w *Watch) C() <-chan struct{} { return w.c }

// Stop ends the subscription.
func (w *Watch) Stop() {
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	set := w.t.watches[w.session]
	delete(set, w)
	if len(set) == 0 {
		delete(w.t.watches, w.session)
	}
}
