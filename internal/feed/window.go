package feed

import (
	"context"
	"sort"
	"time"

	"loquat"
	"loquat/internal/store"
)

// defaultLimit is the limit of a query that has none.
const defaultLimit = 1000

// Events returns the next window of a query. If the query says so, it waits for the first
// event. A window without events means that the wait is over.
func (f *Feed) Events(ctx context.Context, q Query) (Window, error) {
	if q.Since == nil && q.filter() == (store.Filter{}) {
		return Window{Bootstrap: true, Cursor: f.store.Last()}, nil
	}
	start, err := f.resolveStart(ctx, q)
	if err != nil {
		return Window{}, err
	}
	if q.Limit == 0 {
		q.Limit = defaultLimit
	}
	if q.Wait <= 0 {
		return f.readWindow(ctx, start.cursor, q)
	}
	wakeUp := f.store.Watch(start.sessionID) // before the first read, so that no event is missed
	defer wakeUp.Stop()
	deadline := time.NewTimer(q.Wait)
	defer deadline.Stop()
	for {
		w, err := f.readWindow(ctx, start.cursor, q)
		if err != nil || len(w.Events) > 0 {
			return w, err
		}
		select {
		case <-wakeUp.C():
		case <-deadline.C:
			return w, nil
		case <-ctx.Done():
			return w, ctx.Err()
		case <-f.closed:
			// The last event may have come between the read and the close.
			if w, err := f.readWindow(ctx, start.cursor, q); err != nil || len(w.Events) > 0 {
				return w, err
			}
			return w, loquat.Errorf(loquat.CodeUnavailable, "the server is shutting down")
		}
	}
}

// readWindow reads the events after a cursor without waiting.
func (f *Feed) readWindow(ctx context.Context, cursor loquat.EventID, q Query) (Window, error) {
	records, err := f.store.Events(ctx, cursor, q.filter(), store.Bounds{Events: q.Limit, Bytes: q.Bytes, Reserve: q.Reserve})
	if err != nil {
		return Window{}, err
	}
	// After the read: retention may have removed events while it ran.
	if err := f.checkRetained(ctx, cursor, q.filter()); err != nil {
		return Window{}, err
	}
	if q.Until != 0 {
		records = records[:sort.Search(len(records), func(i int) bool { return records[i].ID > q.Until })]
	}
	if len(records) == 0 {
		if q.Reserve != nil {
			_ = q.Reserve(ctx, 0) // nothing is held while the call waits
		}
		return Window{Cursor: cursor}, f.checkTarget(ctx, cursor, q)
	}
	w := Window{Events: records, Cursor: records[len(records)-1].ID}
	switch {
	case q.Raw:
	case q.Push:
		w.Events = loquat.CompactForPush(records)
	default:
		w.Events = loquat.Compact(records)
	}
	if q.OmitSession {
		for i := range w.Events {
			w.Events[i].Rev = 0
		}
	}
	return w, nil
}

// checkRetained returns the error gone if retention removed events above a cursor that
// match the filter.
func (f *Feed) checkRetained(ctx context.Context, cursor loquat.EventID, filter store.Filter) error {
	removedOverall, settled := f.store.NewestRemovedOverall()
	if cursor >= removedOverall {
		return nil
	}
	if t, ok := f.targets.get(filter); ok && settled && t.removedOverall == removedOverall && cursor >= t.removed {
		return nil
	}
	removed, err := store.Read(ctx, f.store, func(r *store.Reader) (loquat.EventID, error) { return r.NewestRemoved(filter) })
	if err != nil {
		return err
	}
	if cursor < removed {
		return loquat.Errorf(loquat.CodeGone, "events after %s were removed by age; load the messages again and follow from their cursor", cursor)
	}
	if settled {
		f.targets.setRemoved(filter, removed, removedOverall)
	}
	return nil
}
