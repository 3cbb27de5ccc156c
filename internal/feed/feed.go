// Package feed reads the log for those who follow it: polls, streams and the bridge.
//
// It promises that a follower that asks again from the end of each window gets every event
// that its query matches, in the order of the log, or the error gone; that an event shows no
// session that was deleted; and that followers that are up to date do not read the database.
// It changes nothing, runs no goroutines and does not know who may see what.
package feed

import (
	"context"
	"sync"
	"time"

	"loquat"
	"loquat/internal/store"
)

// Feed reads the log of a store. Make one with New.
type Feed struct {
	store     *store.Store
	facts     *facts
	histories *histories
	closed    chan struct{}
	close     sync.Once
}

// New returns a feed of the events in s.
func New(s *store.Store) *Feed {
	return &Feed{store: s, facts: newFacts(s), histories: newHistories(s), closed: make(chan struct{})}
}

// Close ends the waits of all followers, now and later. Each gets what the log holds for it
// before it gets the error unavailable. So Close comes after the last event.
func (f *Feed) Close() { f.close.Do(func() { close(f.closed) }) }

// Query chooses events of the log.
type Query struct {
	Since       *loquat.EventID
	Until       loquat.EventID // nothing after this one; 0 is no bound
	SessionID   string
	RequestID   string
	Limit       int           // events that match, before compaction; 0 means 1000
	Wait        time.Duration // answer as soon as one event matches; 0 answers at once
	OmitSession bool          // events come without `session`
	Raw         bool          // the events come as they are stored; who reads them compacts
	Bytes       int           // of event bodies, at which the window ends; 0 means 8 MiB
	Push        bool          // the events go out one by one, and the reader may be cut off between any two

	// Reserve is called before events of so many bytes are read from the database, and with 0
	// when a read found none. Its error ends the call. Nil reserves nothing.
	Reserve func(ctx context.Context, bytes int) error
}

// Window is a compacted part of the log. It belongs to the caller.
type Window struct {
	Events    []loquat.Record
	Bootstrap bool           // neither a position nor a filter was given: Events is empty
	Latest    loquat.EventID // with Bootstrap, the newest event; else the position after this window
}
