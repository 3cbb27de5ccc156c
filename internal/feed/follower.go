package feed

import (
	"cmp"
	"context"
	"slices"
	"time"

	"loquat"
	"loquat/internal/store"
)

// ErrClosed reports that the service stops.
var ErrClosed error = loquat.Errorf(loquat.CodeUnavailable, "the server is shutting down")

// Follower reads the windows of one query one after another. It subscribes to wake-ups once,
// for all windows. A follower that is level with the log waits for a single channel, which is
// signalled by matching commits and by what else ends a wait. It belongs to one goroutine.
type Follower struct {
	feed    *Feed
	query   Query
	start   loquat.EventID
	watch   *store.Watch
	release func() bool // of the wake-up by the context
	alarm   *time.Timer // wakes the follower at alarmAt; nil before the first wait
	alarmAt time.Time

	// checked is an event up to which the log has no more matching events than were returned.
	checked  loquat.EventID
	mustRead bool            // checked does not count
	deleted  bool            // the last window had the session_deleted of a session that the query names
	records  []loquat.Record // of the last window; reused
}

// keptRecords is the most records for which a Follower keeps its memory between windows.
const keptRecords = 8

// Follow returns a follower of a query, which starts as ResolveCursor says. Its waits end when
// ctx ends. Stop must be called. The query's Wait does not count.
func (f *Feed) Follow(ctx context.Context, q Query) (*Follower, error) {
	start, err := f.resolveStart(ctx, q)
	if err == nil {
		err = f.checkRetained(ctx, start.cursor, q)
	}
	if err != nil {
		return nil, err
	}
	q.Limit = cmp.Or(q.Limit, defaultLimit)
	fl := &Follower{feed: f, query: q, start: start.cursor, mustRead: true}
	of := q.filter()
	if of.Among == nil {
		of.SessionID = start.sessionID // which may be that of its request
	}
	fl.watch = f.store.Watch(of) // before the first read, so that no event is missed
	fl.release = context.AfterFunc(ctx, fl.watch.Wake)
	return fl, nil
}

// Start returns the cursor from which the follower starts.
func (fl *Follower) Start() loquat.EventID { return fl.start }

// Stop ends the subscription.
func (fl *Follower) Stop() {
	fl.watch.Stop()
	fl.release()
	if fl.alarm != nil {
		fl.alarm.Stop()
	}
}

// Next returns the window after a cursor. It waits for the first event until a time, after
// which it returns a window without events. The events of a window are valid until the next
// call.
func (fl *Follower) Next(ctx context.Context, after loquat.EventID, until time.Time) (Window, error) {
	for {
		closed := fl.feed.closed.Load() // before the read, which then finds the last event
		if newest := fl.watch.Newest(); closed || fl.mustRead || newest > max(after, fl.checked) {
			w, err := fl.read(ctx, after)
			if err != nil || len(w.Events) > 0 {
				return w, err
			}
			fl.checked = newest
		}
		switch {
		case closed:
			return Window{Cursor: after}, ErrClosed
		case ctx.Err() != nil:
			return Window{Cursor: after}, ctx.Err()
		case !time.Now().Before(until):
			return Window{Cursor: after}, nil
		}
		fl.setAlarm(until)
		fl.dropRecords()
		<-fl.watch.C()
	}
}

// dropRecords drops the last window, so that a follower that waits holds no events. A record
// would also hold the frames of all events of its commit.
func (fl *Follower) dropRecords() {
	if cap(fl.records) > keptRecords {
		fl.records = nil
	}
	clear(fl.records)
}

// read reads the window after a cursor without waiting.
func (fl *Follower) read(ctx context.Context, after loquat.EventID) (Window, error) {
	if cap(fl.records) > keptRecords {
		fl.records = nil
	}
	if fl.feed.store.Foreign(fl.checked) {
		fl.checked = 0
	}
	if fl.deleted { // the other sessions of the query may go on having events
		if err := fl.feed.checkTargets(ctx, after, fl.query); err != nil {
			return Window{}, err
		}
	}
	after = max(after, fl.checked) // a quiet session's part of the tail may not reach further back
	records, err := fl.watch.Events(ctx, fl.records, after, fl.query.RequestID, fl.query.bounds())
	if err != nil {
		return Window{}, err
	}
	fl.records = records
	// After a deletion there is nothing to wait for: the next read fails.
	fl.deleted = slices.ContainsFunc(records, fl.query.ends)
	fl.mustRead = fl.deleted
	return fl.feed.window(ctx, after, fl.query, records)
}

// setAlarm makes the watch wake up at a time. It does nothing in most waits of a stream,
// because they end by events long before the same time.
func (fl *Follower) setAlarm(at time.Time) {
	switch {
	case at.Equal(fl.alarmAt):
		return
	case fl.alarm == nil:
		fl.alarm = time.AfterFunc(time.Until(at), fl.watch.Wake)
	default:
		fl.alarm.Reset(time.Until(at))
	}
	fl.alarmAt = at
}
