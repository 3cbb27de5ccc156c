package feed

import (
	"sync"

	"loquat"
	"loquat/internal/store"
)

// maxFacts bounds how many filters are remembered. One more makes room by chance.
const maxFacts = 4096

// facts remembers what was found of the filters that clients follow by, so that a follower
// need not ask the database again each time that it wakes. What ends a fact is in the
// newest part of the log; a fact that is older than that no longer counts.
type facts struct {
	store *store.Store

	mu sync.Mutex
	by map[store.Filter]fact
}

// fact is what is known of a filter.
type fact struct {
	session string         // that it is about, which was there
	at      loquat.EventID // when the log ended here

	gone, goneOfAll loquat.EventID // what retention removed for it, when that was what it removed of all
}

func newFacts(s *store.Store) *facts { return &facts{store: s, by: map[store.Filter]fact{}} }

// of returns what is known of a filter: its session is still there.
func (f *facts) of(filter store.Filter) (fact, bool) {
	f.mu.Lock()
	known, ok := f.by[filter]
	f.mu.Unlock()
	return known, ok && f.store.Stands(known.session, known.at)
}

// note remembers what a filter names, which was found when the log had ended at an id.
func (f *facts) note(filter store.Filter, found named, at loquat.EventID) {
	if found.deleted {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.by[filter]
	known.session, known.at = found.session, at
	f.put(filter, known)
}

// noteGone remembers what retention had removed for a filter.
func (f *facts) noteGone(filter store.Filter, ofAll, gone loquat.EventID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.by[filter]; ok {
		known.goneOfAll, known.gone = ofAll, gone
		f.put(filter, known)
	}
}

func (f *facts) put(filter store.Filter, known fact) {
	if _, ok := f.by[filter]; !ok && len(f.by) >= maxFacts {
		for some := range f.by {
			delete(f.by, some)
			break
		}
	}
	f.by[filter] = known
}
