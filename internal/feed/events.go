package feed

import (
	"context"
	"io"
	"sort"
	"time"

	"loquat"
	"loquat/internal/store"
)

// defaultLimit is how many events a window holds when the query does not say.
const defaultLimit = 1000

// Events returns the next window of what a query asks for, waiting for it when the
// query says so. The window of a wait that brought nothing is empty.
func (f *Feed) Events(ctx context.Context, q Query) (Window, error) {
	if q.Since == nil && q.SessionID == "" && q.RequestID == "" {
		return Window{Bootstrap: true, Latest: f.store.Last()}, nil
	}
	since, watched, err := f.position(ctx, q)
	if err != nil {
		return Window{}, err
	}
	if q.Limit == 0 {
		q.Limit = defaultLimit
	}
	if q.Wait <= 0 {
		return f.window(ctx, since, q)
	}
	watch := f.store.Watch(watched)
	defer watch.Stop()
	deadline := time.NewTimer(q.Wait)
	defer deadline.Stop()
	for {
		w, err := f.window(ctx, since, q)
		if err != nil || len(w.Events) > 0 {
			return w, err
		}
		select {
		case <-watch.C():
		case <-deadline.C:
			return w, nil
		case <-ctx.Done():
			return w, ctx.Err()
		case <-f.closed:
			if w, err := f.window(ctx, since, q); err != nil || len(w.Events) > 0 {
				return w, err
			}
			return w, loquat.Errorf(loquat.CodeUnavailable, "the server is shutting down")
		}
	}
}

// Latest is the newest event of the log.
func (f *Feed) Latest() loquat.EventID { return f.store.Last() }

// window reads once.
func (f *Feed) window(ctx context.Context, since loquat.EventID, q Query) (Window, error) {
	filter := store.Filter{SessionID: q.SessionID, RequestID: q.RequestID}
	records, err := f.store.Events(ctx, since, filter, store.Bounds{Events: q.Limit, Bytes: q.Bytes, Reserve: q.Reserve})
	if err != nil {
		return Window{}, err
	}
	if err := f.checkKept(ctx, since, filter); err != nil {
		return Window{}, err
	}
	if q.Until != 0 {
		records = records[:sort.Search(len(records), func(i int) bool { return records[i].ID > q.Until })]
	}
	if len(records) == 0 {
		if q.Reserve != nil {
			_ = q.Reserve(ctx, 0) // nothing is held while the call waits
		}
		return Window{Latest: since}, f.stillThere(ctx, since, q)
	}
	compact := loquat.Compact
	if q.Push {
		compact = loquat.CompactForPush
	}
	out := Window{Events: records, Latest: records[len(records)-1].ID}
	if !q.Raw {
		out.Events = compact(records)
	}
	if q.OmitSession {
		out.Events = withoutSessions(out.Events, records)
	}
	return out, nil
}

// checkKept says gone when retention removed what a reader would miss.
func (f *Feed) checkKept(ctx context.Context, since loquat.EventID, filter store.Filter) error {
	all, settled := f.store.GoneOfAll()
	if since >= all {
		return nil
	}
	if fact, ok := f.facts.of(filter); ok && settled && fact.goneOfAll == all && since >= fact.gone {
		return nil
	}
	var gone loquat.EventID
	err := f.store.View(ctx, func(r *store.Reader) (err error) {
		gone, err = r.Gone(filter)
		return err
	})
	if err != nil {
		return err
	}
	if since < gone {
		return loquat.Errorf(loquat.CodeGone, "events after %s were removed by age; load the messages again and follow from their cursor", since)
	}
	if settled {
		f.facts.noteGone(filter, all, gone)
	}
	return nil
}

// withoutSessions leaves the sessions out of events, in a list of its own: the one
// that came from the store may be shared.
func withoutSessions(events, shared []loquat.Record) []loquat.Record {
	if len(events) > 0 && &events[0] == &shared[0] {
		events = append([]loquat.Record(nil), events...)
	}
	for i := range events {
		events[i].Rev = 0
	}
	return events
}

// stillThere says not_found when what a query names is gone, and what told of that is
// no longer ahead.
func (f *Feed) stillThere(ctx context.Context, since loquat.EventID, q Query) error {
	if q.SessionID == "" && q.RequestID == "" {
		return nil
	}
	filter := store.Filter{SessionID: q.SessionID, RequestID: q.RequestID}
	if _, ok := f.facts.of(filter); ok {
		return nil
	}
	at := f.store.Last()
	return f.store.View(ctx, func(r *store.Reader) error {
		t, err := target(r, q, since)
		if err == nil {
			f.facts.note(filter, t, at)
		}
		return err
	})
}

// Position returns where a follow of the query starts.
func (f *Feed) Position(ctx context.Context, q Query) (loquat.EventID, error) {
	since, _, err := f.position(ctx, q)
	if err != nil {
		return 0, err
	}
	return since, f.checkKept(ctx, since, store.Filter{SessionID: q.SessionID, RequestID: q.RequestID})
}

// position returns the id after which a query begins, and the session whose commits
// can bring something for it ("": any).
func (f *Feed) position(ctx context.Context, q Query) (since loquat.EventID, watched string, err error) {
	last := f.store.Last() // before the reads: what comes later is above it
	if q.Since != nil && *q.Since > last {
		return 0, "", loquat.Errorf(loquat.CodeGone, "since_id %s is above the highest id that this server ever gave, %s; load the messages again and follow from their cursor", *q.Since, last)
	}
	if q.Since != nil && f.store.Foreign(*q.Since) {
		return 0, "", loquat.Errorf(loquat.CodeGone, "since_id %s is no id of this server, whose data were restored from a backup; load the messages again and follow from their cursor", *q.Since)
	}
	if q.SessionID == "" && q.RequestID == "" {
		if q.Since == nil {
			return last, "", nil
		}
		return *q.Since, "", nil
	}
	filter := store.Filter{SessionID: q.SessionID, RequestID: q.RequestID}
	if fact, ok := f.facts.of(filter); ok && q.Since != nil {
		return *q.Since, fact.session, nil
	}
	err = f.store.View(ctx, func(r *store.Reader) error {
		at := last
		if q.Since != nil {
			at = *q.Since
		}
		t, err := target(r, q, at)
		if err != nil {
			return err
		}
		watched = t.session
		f.facts.note(filter, t, last)
		switch {
		case q.Since != nil:
			since = *q.Since
		case q.SessionID != "":
			since = t.cursor
		default:
			first, err := r.FirstEvent(t.request)
			if err != nil {
				return err
			}
			gone, err := r.Gone(store.Filter{RequestID: q.RequestID})
			if err != nil {
				return err
			}
			switch {
			case gone == 0 && first != 0:
				since = first - 1
			case gone != 0 || t.request.Status.Ended():
				return loquat.Errorf(loquat.CodeGone, "the events of request %s were removed by age", t.request.RequestID)
			default: // it waits, and nothing of it is in the log yet
				since = last
			}
		}
		return nil
	})
	return since, watched, err
}

// named is what the filters of a query name.
type named struct {
	session string
	deleted bool // its deletion lies ahead
	cursor  loquat.EventID
	request store.Request
}

// target looks up what the filters name; not_found when there is no such thing. A
// deleted session can be asked for as long as its deletion lies ahead.
func target(r *store.Reader, q Query, since loquat.EventID) (named, error) {
	var out named
	if q.SessionID != "" {
		deleted, err := r.Deletion(q.SessionID)
		if err != nil {
			return out, err
		}
		if deleted != 0 {
			if since < deleted && q.RequestID == "" {
				return named{session: q.SessionID, deleted: true, cursor: deleted - 1}, nil
			}
			return out, loquat.Errorf(loquat.CodeNotFound, "session %q was deleted", loquat.Clip(q.SessionID, loquat.Excerpt))
		}
		h, err := r.Head(q.SessionID)
		if err != nil {
			return out, err
		}
		out.session, out.cursor = h.SessionID, h.Cursor
	}
	if q.RequestID == "" {
		return out, nil
	}
	var err error
	if out.request, err = r.Request(q.RequestID); err != nil {
		return out, err
	}
	if out.session == "" {
		out.session = out.request.SessionID
	}
	if out.session != out.request.SessionID {
		return out, loquat.Errorf(loquat.CodeNotFound, "request %q is not one of session %q", loquat.Clip(q.RequestID, loquat.Excerpt), loquat.Clip(q.SessionID, loquat.Excerpt))
	}
	return out, nil
}

// WriteEvent writes what AppendEvent appends. It copies nothing that many clients read at
// the same time: bodies and the messages of sessions are shared. An error that is not w's
// comes before the first byte.
func (f *Feed) WriteEvent(ctx context.Context, w io.Writer, rec loquat.Record) error {
	if rec.Rev == 0 {
		return rec.WriteJSON(w, nil)
	}
	history, err := f.histories.of(ctx, rec)
	if loquat.CodeOf(err) == loquat.CodeNotFound { // deleted since: its deletion is the client's next event
		return rec.WriteJSON(w, nil)
	}
	if err != nil {
		return err
	}
	head, err := history.encodeHead(rec)
	if err != nil {
		return err
	}
	return rec.WriteJSON(w, func(w io.Writer) error { return history.write(w, head, rec) })
}

// AppendEvent appends the JSON of an event as clients read it, with the session that it
// carries as that was at its revision.
func (f *Feed) AppendEvent(ctx context.Context, dst []byte, rec loquat.Record) ([]byte, error) {
	if rec.Rev == 0 {
		return rec.AppendJSON(dst, nil), nil
	}
	history, err := f.histories.of(ctx, rec)
	if loquat.CodeOf(err) == loquat.CodeNotFound { // deleted since: its deletion is the next that the client hears
		return rec.AppendJSON(dst, nil), nil
	}
	if err != nil {
		return dst, err
	}
	session, err := history.session(rec)
	if err != nil {
		return dst, err
	}
	return rec.AppendJSON(dst, session), nil
}
