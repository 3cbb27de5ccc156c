package feed

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"time"

	"loquat"
	"loquat/internal/store"
)

// defaultLimit is the limit of a query that has none.
const defaultLimit = 1000

// levelEvents is the most events of a window whose increments are not merged before a push. The
// follower of such a window does not lag: merging its few increments would cost more than sending
// them.
const levelEvents = 16

// supersedes reports whether increments before an event may be dropped. They are dropped from
// every window that is pushed. Otherwise a client that was cut off from a large window, which
// lacked the first increments of a reply, could resume with a small one that has the last.
func supersedes(r loquat.Record) bool {
	return r.Type == loquat.Final || r.Type == loquat.ToolResults || r.Type == loquat.RequestCompleted
}

// Events returns the next window of a query. If the query says so, it waits for the first
// event. A window without events means that the wait is over.
func (f *Feed) Events(ctx context.Context, q Query) (Window, error) {
	if q.Since == nil && len(q.named()) == 0 {
		return Window{Bootstrap: true, Cursor: f.store.Last()}, nil
	}
	if q.Wait > 0 {
		until := time.Now().Add(q.Wait)
		fl, err := f.Follow(ctx, q)
		if err != nil {
			return Window{}, err
		}
		defer fl.Stop()
		return fl.Next(ctx, fl.Start(), until)
	}
	start, err := f.resolveStart(ctx, q)
	if err != nil {
		return Window{}, err
	}
	q.Limit = cmp.Or(q.Limit, defaultLimit)
	records, err := f.store.Events(ctx, start.cursor, q.filter(), q.bounds())
	if err != nil {
		return Window{}, err
	}
	return f.window(ctx, start.cursor, q, records)
}

func (q Query) bounds() store.Bounds {
	return store.Bounds{Events: q.Limit, Bytes: q.Bytes, Reserve: q.Reserve}
}

// window returns the window of the records after a cursor. The records must have been read
// already: retention may remove events during the read.
func (f *Feed) window(ctx context.Context, cursor loquat.EventID, q Query, records []loquat.Record) (Window, error) {
	if err := f.checkForeign(cursor); err != nil { // lost since the follower started
		return Window{}, err
	}
	if err := f.checkRetained(ctx, cursor, q); err != nil {
		return Window{}, err
	}
	if q.Until != 0 {
		records = records[:sort.Search(len(records), func(i int) bool { return records[i].ID > q.Until })]
	}
	if len(records) == 0 {
		if q.Reserve != nil {
			_ = q.Reserve(ctx, 0) // nothing is held while the call waits
		}
		return Window{Cursor: cursor}, f.checkTargets(ctx, cursor, q)
	}
	w := Window{Events: records, Cursor: records[len(records)-1].ID}
	switch {
	case q.Raw:
	case !q.Push:
		w.Events = loquat.Compact(records)
	case len(records) > levelEvents || slices.ContainsFunc(records, supersedes):
		w.Events = loquat.CompactForPush(records)
	}
	if q.OmitSession {
		for i := range w.Events {
			w.Events[i].Rev = 0
		}
	}
	return w, nil
}

// checkRetained returns the error gone if retention removed events above a cursor that
// match the query.
func (f *Feed) checkRetained(ctx context.Context, cursor loquat.EventID, q Query) error {
	removedOverall, settled := f.store.NewestRemovedOverall()
	if cursor >= removedOverall {
		return nil
	}
	for _, filter := range q.retained() {
		if t, ok := f.targets.get(filter); ok && settled && t.removedOverall == removedOverall && cursor >= t.removed {
			continue
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
	}
	return nil
}
