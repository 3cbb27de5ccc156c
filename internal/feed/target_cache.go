package feed

import (
	"sync"

	"loquat"
	"loquat/internal/store"
)

// maxTargets bounds how many filters a targetCache remembers.
const maxTargets = 4096

// targetCache remembers that the sessions of filters exist, so that a follower does not read
// the database each time it wakes up.
//
// Key: the filter.
// Invalidation: an entry counts while the tail of the log reaches back to where the entry was
// made and shows no deletion of its session since then.
// Bound: maxTargets entries. A random entry makes room: followers often wake up in turn,
// and then the least recently used entry is the one that is needed next.
type targetCache struct {
	store *store.Store

	mu      sync.Mutex
	entries map[store.Filter]targetEntry // guarded by mu
}

// targetEntry is what a targetCache remembers of a filter.
type targetEntry struct {
	sessionID string         // the session that the filter names, or its request's session
	latest    loquat.EventID // the newest event when the session was found

	// removed is the newest event that retention removed for the filter. It was read when
	// the newest event that retention removed overall was removedOverall. If that has
	// moved, removed is stale.
	removed, removedOverall loquat.EventID
}

func newTargetCache(s *store.Store) *targetCache {
	return &targetCache{store: s, entries: map[store.Filter]targetEntry{}}
}

// get returns the entry of a filter if the filter's session still exists.
func (c *targetCache) get(filter store.Filter) (targetEntry, bool) {
	c.mu.Lock()
	entry, ok := c.entries[filter]
	c.mu.Unlock()
	return entry, ok && c.store.ExistsSince(entry.sessionID, entry.latest)
}

// all reports whether the sessions of all filters still exist, and returns the session if there is one filter.
func (c *targetCache) all(filters []store.Filter) (sessionID string, ok bool) {
	for _, filter := range filters {
		entry, ok := c.get(filter)
		if !ok {
			return "", false
		}
		if len(filters) == 1 {
			sessionID = entry.sessionID
		}
	}
	return sessionID, true
}

// add remembers the target of a filter. latest is the newest event before the target was read.
func (c *targetCache) add(filter store.Filter, t target, latest loquat.EventID) {
	if t.deleted {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	entry, known := c.entries[filter]
	if !known {
		c.makeRoom()
	}
	entry.sessionID, entry.latest = t.sessionID, latest
	c.entries[filter] = entry
}

// setRemoved remembers the newest event that retention removed for a filter that has an
// entry, and the newest that it removed overall.
func (c *targetCache) setRemoved(filter store.Filter, removed, removedOverall loquat.EventID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry, ok := c.entries[filter]; ok {
		entry.removed, entry.removedOverall = removed, removedOverall
		c.entries[filter] = entry
	}
}

// makeRoom removes a random entry if the cache is full. The caller holds mu.
func (c *targetCache) makeRoom() {
	if len(c.entries) < maxTargets {
		return
	}
	for filter := range c.entries {
		delete(c.entries, filter)
		return
	}
}
