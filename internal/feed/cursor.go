package feed

import (
	"context"

	"loquat"
	"loquat/internal/store"
)

// ResolveCursor returns the cursor from which a follower of the query starts:
//   - the query's Since, if it has one;
//   - else the cursor of the session's snapshot, if the query names a session;
//   - else the place before the request's first event, if the query names a request;
//   - else the lowest cursor of the sessions that have events after it, if the query names several;
//   - else the newest event.
//
// It fails with gone if events after the cursor were removed or the cursor is not one of this
// log, and with not_found if a session or request does not exist.
func (f *Feed) ResolveCursor(ctx context.Context, q Query) (loquat.EventID, error) {
	start, err := f.resolveStart(ctx, q)
	if err != nil {
		return 0, err
	}
	return start.cursor, f.checkRetained(ctx, start.cursor, q)
}

// start is where a follower begins.
type start struct {
	cursor    loquat.EventID
	sessionID string // the session whose events can match the query; "" means any, or several
}

func (f *Feed) resolveStart(ctx context.Context, q Query) (start, error) {
	if err := f.reach(ctx, q); err != nil {
		return start{}, err
	}
	latest := f.store.Last() // before the reads: events that they do not see are above it
	cursor := latest
	if q.Since != nil {
		if err := f.checkSince(*q.Since, latest); err != nil {
			return start{}, err
		}
		cursor = *q.Since
	}
	named := q.named()
	if len(named) == 0 {
		return start{cursor: cursor}, nil
	}
	if q.Since != nil {
		if sessionID, ok := f.targets.all(named); ok {
			return start{cursor, sessionID}, nil
		}
	}
	return store.Read(ctx, f.store, func(r *store.Reader) (out start, err error) {
		out.cursor = cursor
		for i, filter := range named {
			t, err := findTarget(r, filter, cursor)
			if err != nil {
				return start{}, err
			}
			f.targets.add(filter, t, latest)
			if q.Since == nil {
				first, err := firstCursor(r, filter, t, latest, len(named) > 1)
				if err != nil {
					return start{}, err
				}
				// It may be above latest, if another node wrote it; the tail has it when the read returns.
				if i == 0 || first < out.cursor {
					out.cursor = first
				}
			}
			if len(named) == 1 {
				out.sessionID = t.sessionID
			}
		}
		return out, nil
	})
}

// reach makes the tail include what the client of a query that has a Since may know from another
// node. That is the event itself, and also the ends of requests after it: because of such an end, the
// other node may have left out increments before the event; see tail.hides in package store.
func (f *Feed) reach(ctx context.Context, q Query) error {
	if q.Since == nil {
		return nil
	}
	return f.store.CatchUp(ctx)
}

// checkSince returns the error gone if the log never gave an event id.
func (f *Feed) checkSince(since, latest loquat.EventID) error {
	if since > latest {
		return loquat.Errorf(loquat.CodeGone, "since_id %s is above %s, the highest id that this server has assigned; load the messages again and follow from their cursor", since, latest)
	}
	return f.checkForeign(since)
}

// checkForeign returns the error gone if a cursor is the id of an event that the log has lost.
func (f *Feed) checkForeign(cursor loquat.EventID) error {
	if !f.store.Foreign(cursor) {
		return nil
	}
	return loquat.Errorf(loquat.CodeGone, "event %s is not in the log of this server, whose database was restored from a backup or lost its newest changes in a failover; load the messages again and follow from their cursor", cursor)
}

// firstCursor returns the cursor of a target for a query without Since. If the query names several
// sessions, one that has no events after its cursor starts at the newest event.
func firstCursor(r *store.Reader, filter store.Filter, t target, latest loquat.EventID, several bool) (loquat.EventID, error) {
	if filter.SessionID != "" {
		if several && !t.deleted {
			more, err := r.EventsAfterCursor(t.head)
			if err != nil || !more {
				return latest, err
			}
		}
		return t.cursor, nil
	}
	first, err := r.FirstEvent(t.request)
	if err != nil {
		return 0, err
	}
	removed, err := r.NewestRemoved(filter)
	if err != nil {
		return 0, err
	}
	switch {
	case removed == 0 && first != 0:
		return first - 1, nil
	case removed != 0 || t.request.Status.Ended():
		return 0, loquat.Errorf(loquat.CodeGone, "the events of request %s were removed by age", t.request.RequestID)
	default: // the request is queued and has no event yet
		return latest, nil
	}
}

// target is the session and the request that the filter of a query names.
type target struct {
	sessionID string         // of the session, or of the request's session
	deleted   bool           // the session was deleted, and session_deleted is still to be read
	cursor    loquat.EventID // of the session, if the query names one
	head      store.Head     // the same
	request   store.Request  // if the query names one
}

// findTarget returns what a filter names, or not_found. A deleted session is found as long as its
// session_deleted is above the cursor: its followers still get that.
func findTarget(r *store.Reader, q store.Filter, cursor loquat.EventID) (target, error) {
	var t target
	if q.SessionID != "" {
		deletion, err := r.Deletion(q.SessionID)
		if err != nil {
			return target{}, err
		}
		if deletion != 0 {
			if cursor < deletion && q.RequestID == "" {
				return target{sessionID: q.SessionID, deleted: true, cursor: deletion - 1}, nil
			}
			return target{}, loquat.Errorf(loquat.CodeNotFound, "session %q was deleted", loquat.Clip(q.SessionID, loquat.Excerpt))
		}
		h, err := r.Head(q.SessionID)
		if err != nil {
			return target{}, err
		}
		t.sessionID, t.cursor, t.head = h.SessionID, h.Cursor, h
	}
	if q.RequestID == "" {
		return t, nil
	}
	var err error
	if t.request, err = r.Request(q.RequestID); err != nil {
		return target{}, err
	}
	if t.sessionID == "" {
		t.sessionID = t.request.SessionID
	}
	if t.sessionID != t.request.SessionID {
		return target{}, loquat.Errorf(loquat.CodeNotFound, "request %q is not one of session %q", loquat.Clip(q.RequestID, loquat.Excerpt), loquat.Clip(q.SessionID, loquat.Excerpt))
	}
	return t, nil
}

// checkTargets returns not_found if a session or request of a query does not exist and the event of
// the deletion is not above the cursor.
func (f *Feed) checkTargets(ctx context.Context, cursor loquat.EventID, q Query) error {
	named := q.named()
	if _, ok := f.targets.all(named); ok {
		return nil
	}
	latest := f.store.Last()
	return f.store.View(ctx, func(r *store.Reader) error {
		for _, filter := range named {
			t, err := findTarget(r, filter, cursor)
			if err != nil {
				return err
			}
			f.targets.add(filter, t, latest)
		}
		return nil
	})
}
