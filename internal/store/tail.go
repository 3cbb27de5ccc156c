package store

import (
	"maps"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"loquat"
)

// The bounds of the part of the log that is kept in memory.
const (
	tailEvents = 1 << 14
	tailBytes  = 16 << 20
)

// tail is what memory knows of the log: the highest id, the newest events, the followers
// to wake and how far retention has removed. It shortens reads and waits; nothing depends
// on it, for everything in it is on disk. Only add, removing and removed change it: the
// committer and the sweep call them, and whatever else learns of new events could.
type tail struct {
	removing, removed atomic.Int64 // highest event id that retention removes; the same once it has

	mu      sync.RWMutex
	floor   loquat.EventID // every committed event above it is in records
	last    loquat.EventID // highest event id that was committed
	records []loquat.Record
	deleted map[string]loquat.EventID // sessions whose session_deleted is in records
	bytes   int
	watches map[string]map[*Watch]struct{} // by session; "" is all sessions
}

// newTail returns the tail of a log that ends at last, and whose events up to gone were
// removed by retention.
func newTail(last, gone loquat.EventID) *tail {
	t := &tail{floor: last, last: last, deleted: map[string]loquat.EventID{}, watches: map[string]map[*Watch]struct{}{}}
	t.announceRemoval(gone)
	t.finishRemoval()
	return t
}

// removing announces that retention removes events up to an id. It comes before the
// removal, so that a reader in between asks the disk.
func (t *tail) announceRemoval(id loquat.EventID) {
	t.removing.Store(max(t.removing.Load(), int64(id)))
}

// removed reports that the announced removal is on disk.
func (t *tail) finishRemoval() { t.removed.Store(t.removing.Load()) }

// retired returns the highest event id that retention removes, and whether it has.
func (t *tail) newestRemoved() (id loquat.EventID, settled bool) {
	done := t.removed.Load() // read first: it is never ahead
	id = loquat.EventID(t.removing.Load())
	return id, done == int64(id)
}

// end is the highest event id that was committed. What it counts can be read.
func (t *tail) end() loquat.EventID {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.last
}

// add takes over what a commit published, up to last, and wakes those who wait for it.
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

// forget drops what sessions said that are deleted by what was published, and returns
// their ids.
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

// trim drops the oldest half when a bound is passed, so that the copying it takes
// is paid by many events.
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

// since returns the events above an id that match, up to the bounds of a window, and
// whether it could: false means that the tail does not reach back so far.
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

// stands reports that a session was not deleted above an id. False means that it was, or
// that the tail does not reach back so far.
func (t *tail) existsSince(session string, since loquat.EventID) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return since >= t.floor && t.deleted[session] <= since
}

// Stands reports, from memory, that a session which was there when the log ended at an id
// still is. False means that the database has to be asked.
func (s *Store) ExistsSince(sessionID string, since loquat.EventID) bool {
	return s.tail.existsSince(sessionID, since)
}

// Watch wakes a follower. Its channel holds at most one signal: a signal says that
// there may be more, reading says what.
type Watch struct {
	t       *tail
	session string
	c       chan struct{}
}

// Watch waits for events of a session, or of all sessions when it is "". A watch
// that is made before a read misses nothing that the read did not see.
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

// C is signalled after commits that the watch is for.
func (w *Watch) C() <-chan struct{} { return w.c }

// Stop ends the watch.
func (w *Watch) Stop() {
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	set := w.t.watches[w.session]
	delete(set, w)
	if len(set) == 0 {
		delete(w.t.watches, w.session)
	}
}
