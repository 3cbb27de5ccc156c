// Package feed reads the log for its followers: polls, streams and the bridge.
//
// It promises:
//   - A follower that asks again from the cursor of each window gets every event that its
//     query matches, in the order of the log and compacted within each window. If retention
//     removed events that it has not read, it gets the error gone.
//   - A follower that is pushed events one by one may be cut off after each, and resume at any
//     node: it starts with everything that all nodes had committed when it resumed. So it gets no
//     increments without the ones before them that the first follower left out.
//   - The JSON of an event never shows a session that was deleted, even if the event does.
//   - Followers that are level with the log do not read the database, however many there are.
//   - Close ends all waits, but no follower misses an event that was published before Close.
//
// It does not write to the store, it runs no goroutine, and it does not check who may read
// what. It also does not end when requests end: its owner closes it after the last event.
package feed

import (
	"context"
	"sync/atomic"
	"time"

	"loquat"
	"loquat/internal/store"
)

// Feed reads the log of a store. Make one with New.
type Feed struct {
	store    *store.Store
	targets  *targetCache
	sessions *sessionCache

	closed atomic.Bool // set by Close
}

// New returns a feed of the log in s.
func New(s *store.Store) *Feed {
	return &Feed{store: s, targets: newTargetCache(s), sessions: newSessionCache(s)}
}

// Close ends the waits of all followers, also of those that begin later. A follower first
// gets the events that the log still holds for it, then the error unavailable. So call Close
// after the last event was published.
func (f *Feed) Close() {
	f.closed.Store(true)
	f.store.WakeAll()
}

// Latest returns the id of the newest event in the log.
func (f *Feed) Latest() loquat.EventID { return f.store.Last() }

// Query selects events of the log.
type Query struct {
	Since       *loquat.EventID  // only events above it; nil: see ResolveCursor
	Until       loquat.EventID   // only events up to it; 0 means no limit
	SessionID   string           // only events of this session; "" means all sessions
	RequestID   string           // only events of this request; "" means all requests
	User        string           // only events of the sessions of this user; in place of the ids
	Among       *store.Selection // only events of these sessions and of the list; in place of the ids
	Limit       int              // matching events to read, before compaction; 0 means 1000
	Wait        time.Duration    // how long to wait for the first event; 0 means not at all
	OmitSession bool             // the events come without `session`
	Raw         bool             // the events are not compacted
	Bytes       int              // size of event bodies at which the window ends; 0 means store.WindowBytes
	Push        bool             // the reader may be cut off between two events and resume from each: see CompactForPush, Feed.reach

	// Reserve is called with a number of bytes before event bodies of up to that size are
	// read from the database, and with 0 if the read found none. An error of Reserve ends
	// the call. Nil reserves nothing.
	Reserve func(ctx context.Context, bytes int) error
}

func (q Query) filter() store.Filter {
	if q.Among != nil {
		return store.Filter{Among: q.Among}
	}
	return store.Filter{SessionID: q.SessionID, RequestID: q.RequestID, User: q.User}
}

// named returns a filter for each session, and each request, that the query names. Those of a
// Selection are looked up one by one, so followers with different selections share what is known.
func (q Query) named() []store.Filter {
	switch {
	case q.Among != nil:
		out := make([]store.Filter, len(q.Among.Sessions))
		for i, id := range q.Among.Sessions {
			out[i] = store.Filter{SessionID: id}
		}
		return out
	case q.SessionID == "" && q.RequestID == "": // nothing, or a user, who need not exist
		return nil
	}
	return []store.Filter{q.filter()}
}

// ends reports whether no event of a session that the query names comes after a record.
func (q Query) ends(r loquat.Record) bool {
	if r.Type != loquat.SessionDeleted {
		return false
	}
	if q.Among != nil {
		return q.Among.Has(r.SessionID)
	}
	return true
}

// retained returns the filters whose events above a cursor must not have been removed. The list of
// sessions needs those of all sessions.
func (q Query) retained() []store.Filter {
	if named := q.named(); len(named) > 0 && (q.Among == nil || !q.Among.List) {
		return named
	}
	return []store.Filter{{}}
}

// Window is the events that one poll returns. The slice belongs to the caller, the bodies
// of the events are shared and must not be changed.
type Window struct {
	Events    []loquat.Record
	Cursor    loquat.EventID // since which to ask for the next window
	Bootstrap bool           // the query had no Since and named nothing: Events is empty, and Cursor is the newest event
}
