package store

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"loquat"
)

// tailBounds bound the tail: the number of events and the size of their bodies. The shared
// frames of small events can take as much again.
type tailBounds struct{ events, bytes int }

var defaultTailBounds = tailBounds{events: 1 << 14, bytes: 16 << 20}

// tail is the newest part of the log in memory: the newest events, the highest id, the
// followers to wake, and how far retention has removed events. It is only a cache, because
// everything in it is on disk.
//
// One goroutine at a time calls add. Readers take no lock for events, so a reader never
// delays add, however many there are. A reader loads what add stored last: add replaces the
// slice of a part, or appends beyond the length that earlier readers see.
type tail struct {
	removing, removed atomic.Int64 // newest event that retention is removing; newest that it has removed

	last atomic.Int64 // highest event id that was committed; no reader sees an event above it
	all  *part        // the events of all sessions
	list *part        // those of them that change the list of sessions

	ended  sync.Map     // from request_id to the id of a request_completed in the tail
	sorted atomic.Int64 // see hides

	mu       sync.RWMutex     // also guards the lists of watches against concurrent changes
	sessions map[string]*part // of sessions, of users and of their lists, with events in the tail or with followers

	// The fields below belong to add.
	bounds  tailBounds
	bytes   int
	parts   []partsOfEvent // of the events that are being added
	changed []*part        // the same, each once
}

// partsOfEvent are the parts that have an event, besides the two of all sessions.
type partsOfEvent struct{ session, user, list *part } // those of a user may be nil

// part is the events in the tail of one session, of all sessions or of those of a user, or those of them that
// change the list of sessions, and the followers that wait for more of them.
type part struct {
	name    string       // the session, userPart or listPart and the user; "" if it has events of all sessions
	floor   atomic.Int64 // records has every event above it, except those of a deleted session
	newest  atomic.Int64 // no event of the part is above it
	deleted atomic.Int64 // id of the session_deleted, if it was added while the part existed
	records atomic.Pointer[[]*loquat.Record]
	watches atomic.Pointer[[]*Watch]

	madeAt atomic.Int64 // deleted shows a deletion above this event
	list   bool         // it has the list of all sessions
	inUse  bool         // add uses the part; set under tail.mu, so that release keeps the part
	kept   []*loquat.Record
}

// What precedes the user in the names of parts. No session_id begins with one.
const (
	userPart = "@" // all events of the user's sessions
	listPart = "~" // those that change the list of the user's sessions
)

// isList reports whether the part has only events that change a list.
func (p *part) isList() bool { return p.list || strings.HasPrefix(p.name, listPart) }

func newPart(floor, newest loquat.EventID) *part {
	p := &part{}
	p.madeAt.Store(int64(floor))
	p.floor.Store(int64(floor))
	p.newest.Store(int64(newest))
	return p
}

// publish shows the kept records to readers.
func (p *part) publish() {
	records := p.kept
	p.records.Store(&records)
}

// load returns the records that readers see.
func (p *part) load() []*loquat.Record {
	if records := p.records.Load(); records != nil {
		return *records
	}
	return nil
}

// followers returns the watches of the part.
func (p *part) followers() []*Watch {
	if watches := p.watches.Load(); watches != nil {
		return *watches
	}
	return nil
}

// newTail returns an empty tail of a log that ends at last. Retention has removed events up to
// gone.
func newTail(last, gone loquat.EventID) *tail {
	t := &tail{bounds: defaultTailBounds, all: newPart(last, last), list: newPart(last, last), sessions: map[string]*part{}}
	t.list.list = true
	t.last.Store(int64(last))
	t.announceRemoval(gone)
	t.finishRemoval()
	return t
}

// announceRemoval records that retention is about to remove events up to id. It must be called
// before the removal: meanwhile readers ask the database.
func (t *tail) announceRemoval(id loquat.EventID) {
	raise(&t.removing, id)
}

// raise makes a mark at least id.
func raise(mark *atomic.Int64, id loquat.EventID) {
	for old := mark.Load(); old < int64(id) && !mark.CompareAndSwap(old, int64(id)); {
		old = mark.Load()
	}
}

// finishRemoval records that the announced removal is on disk.
func (t *tail) finishRemoval() { t.noteRemoved(loquat.EventID(t.removing.Load())) }

// newestRemoved returns the newest announced event and whether its removal is finished.
func (t *tail) newestRemoved() (id loquat.EventID, settled bool) {
	done := t.removed.Load() // read first, so that it is never ahead of removing
	id = loquat.EventID(t.removing.Load())
	return id, done == int64(id)
}

// noteRemoved records that retention has removed events up to id, maybe on another node.
func (t *tail) noteRemoved(id loquat.EventID) {
	raise(&t.removing, id) // first, see newestRemoved
	raise(&t.removed, id)
}

// end returns the highest committed event id. Events up to it can be read.
func (t *tail) end() loquat.EventID { return loquat.EventID(t.last.Load()) }

// add appends the events of a commit, up to last, and wakes the followers that watch for them,
// each once.
func (t *tail) add(last loquat.EventID, published []loquat.Record) {
	if len(published) == 0 {
		t.last.Store(int64(last))
		return
	}
	t.findParts(published)
	deleted := t.forget(published)
	batch := slices.Clone(published) // one allocation for all events of the commit
	loquat.ShareFrames(batch)
	listed := false
	for i := range batch {
		r, p := &batch[i], t.parts[i]
		if deleted[p.session] && r.Type != loquat.SessionDeleted {
			continue
		}
		p.session.kept = append(p.session.kept, r)
		if p.user != nil {
			p.user.kept = append(p.user.kept, r)
		}
		if p.list != nil {
			p.list.kept = append(p.list.kept, r)
		}
		t.all.kept = append(t.all.kept, r)
		if ChangesList(r.Type) {
			t.list.kept = append(t.list.kept, r)
			listed = true
		}
		t.bytes += len(r.Body)
		if r.Type == loquat.RequestCompleted {
			t.ended.Store(r.RequestID, r.ID)
		}
	}
	t.all.publish()
	for _, p := range t.changed {
		p.publish()
	}
	if listed {
		t.list.publish()
	}
	t.last.Store(int64(last))
	t.all.wake()
	for _, p := range t.changed {
		p.wake()
	}
	if listed {
		t.list.wake()
	}
	t.trim()
}

// findParts sets parts and changed to the parts of the events' sessions and users. They stay in use until the
// next call.
func (t *tail) findParts(published []loquat.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.changed {
		p.inUse = false
	}
	clear(t.parts)
	clear(t.changed)
	t.parts, t.changed = t.parts[:0], t.changed[:0]
	for i := range published {
		r := &published[i]
		var p partsOfEvent
		if i > 0 && r.SessionID == published[i-1].SessionID {
			p.session, p.user = t.parts[i-1].session, t.parts[i-1].user
		} else {
			p.session = t.use(r.SessionID)
			if r.User != "" {
				p.user = t.use(userPart + r.User)
			}
		}
		if r.User != "" && ChangesList(r.Type) {
			p.list = t.use(listPart + r.User)
		}
		t.parts = append(t.parts, p)
	}
}

// use returns the part with a name, as one of changed. The caller holds mu.
func (t *tail) use(name string) *part {
	p := t.part(name)
	if !p.inUse {
		p.inUse = true
		t.changed = append(t.changed, p)
	}
	return p
}

// part returns the part with a name, and makes it if there is none. Without a part, the tail
// has no event of the session or the user. The caller holds mu.
func (t *tail) part(name string) *part {
	p := t.sessions[name]
	if p == nil {
		p = newPart(loquat.EventID(t.all.floor.Load()), t.end())
		p.name = name
		t.sessions[name] = p
	}
	return p
}

// forget removes the events of sessions that published deletes, and returns the parts of
// these sessions.
func (t *tail) forget(published []loquat.Record) (deleted map[*part]bool) {
	var gone []*loquat.Record
	for i := range published {
		if published[i].Type != loquat.SessionDeleted {
			continue
		}
		if deleted == nil {
			deleted = map[*part]bool{}
		}
		p := t.parts[i]
		deleted[p.session] = true
		p.session.deleted.Store(int64(published[i].ID))
		gone = append(gone, p.session.kept...)
		for _, of := range []*part{p.user, p.list} {
			if of != nil {
				of.kept = withoutRecords(of.kept, p.session.kept)
			}
		}
		p.session.kept = nil
	}
	if len(gone) == 0 {
		return deleted
	}
	t.forgetEnds(gone)
	slices.SortFunc(gone, func(a, b *loquat.Record) int { return cmp.Compare(a.ID, b.ID) })
	for _, r := range gone {
		t.bytes -= len(r.Body)
	}
	t.all.kept, t.list.kept = withoutRecords(t.all.kept, gone), withoutRecords(t.list.kept, gone)
	return deleted
}

// withoutRecords returns the records that are not gone, in a new slice: readers keep the old one. Both are
// in the order of their ids.
func withoutRecords(records, gone []*loquat.Record) []*loquat.Record {
	left := make([]*loquat.Record, 0, len(records))
	for _, r := range records {
		for len(gone) > 0 && gone[0].ID < r.ID {
			gone = gone[1:]
		}
		if len(gone) == 0 || r != gone[0] {
			left = append(left, r)
		}
	}
	return left
}

// hides reports whether the increments of a request are not shown any more: it ended within the tail,
// and increments were sorted after that, which removes the last increments of ended requests from the
// database; a cleanup then removes the others. A client that lags may have read a window without the
// first ones, here or at another node, so the last ones alone would be a text with a gap. A reader may
// not rely on the answer if the floor has risen since it loaded records.
func (t *tail) hides(r *loquat.Record) bool {
	sorted := loquat.EventID(t.sorted.Load())
	if r.ID > sorted || !isIncrement(r.Type) { // most: the request ends after the increment
		return false
	}
	end, ended := t.ended.Load(r.RequestID)
	return ended && end.(loquat.EventID) <= sorted
}

// noteSorted records that increments up to an id were sorted, maybe by another node.
func (t *tail) noteSorted(id loquat.EventID) { raise(&t.sorted, id) }

// forgetEnds removes the requests whose request_completed leaves the tail.
func (t *tail) forgetEnds(gone []*loquat.Record) {
	for _, r := range gone {
		if r.Type == loquat.RequestCompleted {
			t.ended.Delete(r.RequestID)
		}
	}
}

// wake wakes the followers of a part that has a new event.
func (p *part) wake() {
	p.newest.Store(int64(p.kept[len(p.kept)-1].ID))
	for _, w := range p.followers() {
		w.Wake()
	}
}

// trim drops the older half when a bound is exceeded. Dropping many events at once spreads the
// cost of the copy.
func (t *tail) trim() {
	records := t.all.kept
	if len(records) <= t.bounds.events && t.bytes <= t.bounds.bytes {
		return
	}
	drop := 0
	for drop < len(records) && (len(records)-drop > t.bounds.events/2 || t.bytes > t.bounds.bytes/2) {
		t.bytes -= len(records[drop].Body)
		drop++
	}
	floor := records[drop-1].ID
	t.all.drop(drop, floor)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.sessions {
		p.dropUpTo(floor)
	}
	t.list.dropUpTo(floor)
	t.forgetEnds(records[:drop])
	maps.DeleteFunc(t.sessions, func(_ string, p *part) bool { return p.isUnused(floor) })
}

// skip forgets all events and continues above id. Readers of events up to id read the
// database, up to the end of the tail. So no part has a newest event above that end at any time:
// a follower would count as having read up to it.
func (t *tail) skip(id loquat.EventID) {
	t.mu.Lock()
	parts := append(slices.Collect(maps.Values(t.sessions)), t.all, t.list)
	for _, p := range parts {
		p.madeAt.Store(int64(id))
		p.drop(len(p.kept), id)
		p.newest.Store(min(p.newest.Load(), int64(id)))
	}
	t.bytes = 0
	t.ended.Clear()
	t.last.Store(int64(id))
	for _, p := range parts {
		p.newest.Store(int64(id))
	}
	maps.DeleteFunc(t.sessions, func(_ string, p *part) bool { return p.isUnused(id) })
	t.mu.Unlock()
	for _, w := range t.watches() {
		w.Wake()
	}
}

// drop removes the first n events, up to floor. The floor rises first: a reader that sees the
// records without these events also sees the new floor.
func (p *part) drop(n int, floor loquat.EventID) {
	p.floor.Store(int64(floor))
	p.kept = slices.Clone(p.kept[n:])
	p.publish()
}

// dropUpTo drops the events up to an id.
func (p *part) dropUpTo(id loquat.EventID) {
	if n := indexAfter(p.kept, id); n > 0 {
		p.drop(n, p.kept[n-1].ID)
	}
}

// isUnused reports whether a tail with this floor can do without the part. The caller holds
// tail.mu.
func (p *part) isUnused(floor loquat.EventID) bool {
	return !p.inUse && len(p.load()) == 0 && len(p.followers()) == 0 && p.deleted.Load() <= int64(floor)
}

// find returns the part that has the events of a filter without a Selection. It is nil if the tail has none.
func (t *tail) find(f Filter) *part {
	name := f.part()
	if name == "" {
		return t.all
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.sessions[name]
}

// part returns the name of the part that has the events of a filter without a Selection; "" is the part of all
// sessions.
func (f Filter) part() string {
	if f.User != "" {
		return userPart + f.User
	}
	return f.SessionID
}

// increments returns what the tail holds of the increments in the log, for a reader of the database.
func (t *tail) increments(f Filter, parts []*part) heldIncrements {
	if f.Among != nil {
		return t.incrementsAmong(parts)
	}
	p, last := t.all, t.end()
	if name := f.part(); name != "" {
		t.mu.RLock()
		p, last = t.sessions[name], t.end() // under the lock, because newer events may be in another part
		t.mu.RUnlock()
	}
	if p == nil {
		return heldIncrements{from: last, to: last}
	}
	records := p.load() // before the floor, see drop
	floor := loquat.EventID(p.floor.Load())
	return heldIncrements{from: floor, to: last, records: records[:indexAfter(records, last)], tail: t, parts: []*part{p}, floors: []loquat.EventID{floor}}
}

// sinceOne is since for the only one of parts.
func (t *tail) sinceOne(parts []*part, since loquat.EventID, f Filter, b bound, out []loquat.Record) ([]loquat.Record, bool) {
	return t.since(parts[0], since, f, b, out)
}

// since appends to out the matching events of a part above an id, up to the bounds of a
// window. It returns false if the part does not reach back to the id. A nil part has no
// event above the floor of the tail.
func (t *tail) since(p *part, since loquat.EventID, f Filter, b bound, out []loquat.Record) ([]loquat.Record, bool) {
	if p == nil {
		return out, int64(since) >= t.all.floor.Load()
	}
	last := t.end()
	records := p.load() // before the floor, see drop
	floor := p.floor.Load()
	if int64(since) < floor {
		return out, false
	}
	for _, r := range records[indexAfter(records, since):] {
		if r.ID > last {
			break
		}
		if !f.matches(r) || t.hides(r) {
			continue
		}
		if r.Body == nil {
			return nil, false
		}
		if !b.admits(len(r.Body)) {
			break
		}
		out = append(out, *r)
	}
	return out, p.floor.Load() == floor // see hides
}

// indexAfter returns the index of the first record above an id. It searches from the end,
// because most readers are near it.
func indexAfter(records []*loquat.Record, id loquat.EventID) int {
	low, high := 0, len(records)
	for step := 1; step <= len(records); step *= 2 {
		if i := len(records) - step; records[i].ID <= id {
			low = i + 1
			break
		} else {
			high = i
		}
	}
	i, _ := slices.BinarySearchFunc(records[low:high], id, func(r *loquat.Record, id loquat.EventID) int {
		if r.ID <= id {
			return -1
		}
		return 1
	})
	return low + i
}

// existsSince reports whether the tail proves that a session was not deleted above an id. It
// returns false if the session was deleted or the tail does not reach back to the id.
func (t *tail) existsSince(session string, since loquat.EventID) bool {
	p := t.find(Filter{SessionID: session})
	if p == nil || session == "" {
		return int64(since) >= t.all.floor.Load()
	}
	return int64(since) >= p.madeAt.Load() && p.deleted.Load() <= int64(since)
}

// ExistsSince reports, from memory, whether a session that existed when the log ended at since
// still exists. If it returns false, the caller must ask the database.
func (s *Store) ExistsSince(sessionID string, since loquat.EventID) bool {
	return s.tail.existsSince(sessionID, since)
}
