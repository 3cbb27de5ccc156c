package feed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"loquat"
	"loquat/internal/feed"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a feed of a store that the test writes.
type rig struct {
	*feed.Feed
	t     *testing.T
	store *store.Store
	reads atomic.Int64 // reading transactions of the database
}

// countingDriver counts the reading transactions of a database.
type countingDriver struct {
	store.Driver
	reads *atomic.Int64
}

func (d countingDriver) Read(ctx context.Context, fn func(store.SQL) error) error {
	d.reads.Add(1)
	return d.Driver.Read(ctx, fn)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t}
	quiet := slog.New(slog.DiscardHandler)
	db, err := sqlite.Open(t.Context(), t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	if r.store, err = store.Open(t.Context(), countingDriver{db, &r.reads}, store.Options{Logger: quiet, Retention: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	r.Feed = feed.New(r.store)
	t.Cleanup(func() {
		r.Close()
		_ = r.store.Close()
	})
	return r
}

func (r *rig) update(fn func(*store.Tx) error) {
	r.t.Helper()
	if err := r.store.Update(r.t.Context(), fn); err != nil {
		r.t.Fatal(err)
	}
}

// create creates a session and returns its cursor.
func (r *rig) create(id string, metadata loquat.Object) (cursor loquat.EventID) {
	r.t.Helper()
	r.update(func(tx *store.Tx) error {
		h, err := tx.CreateSession(id, "default", metadata)
		if err != nil {
			return err
		}
		if _, err := tx.Publish(loquat.Event{Type: loquat.SessionCreated, AgentID: "default"}, &h, nil); err != nil {
			return err
		}
		err = tx.Checkpoint(&h, nil, false)
		cursor = h.Cursor
		return err
	})
	return cursor
}

// change changes a session and publishes the cursor after the change.
func (r *rig) change(id string, fn func(*store.Tx, *store.Head) error) {
	r.t.Helper()
	r.update(func(tx *store.Tx) error {
		h, err := tx.Head(id)
		if err != nil {
			return err
		}
		if err := fn(tx, &h); err != nil {
			return err
		}
		return tx.Checkpoint(&h, nil, false)
	})
}

// appendMessage appends a message to a session.
func (r *rig) appendMessage(id, content string) {
	r.t.Helper()
	r.change(id, func(tx *store.Tx, h *store.Head) error { return appendTo(tx, h, content) })
}

func appendTo(tx *store.Tx, h *store.Head, content string) error {
	m := loquat.Message{ID: fmt.Sprint("m", h.Rev), Role: loquat.RoleUser, Content: content, CreatedAt: tx.Now}
	if _, err := tx.AppendMessage(h, m); err != nil {
		return err
	}
	_, err := tx.Publish(loquat.Event{Type: loquat.MessageAppended}, h, nil)
	return err
}

// enqueue stores a queued request of a session.
func (r *rig) enqueue(session, id string) {
	r.t.Helper()
	r.update(func(tx *store.Tx) error {
		h, err := tx.Head(session)
		if err != nil {
			return err
		}
		return tx.EnqueueRequest(&h, &store.Request{Request: loquat.Request{RequestID: id}, Send: []byte("{}"), Answer: []byte("{}")}, store.AtTheEnd)
	})
}

// publish publishes an event of a request.
func (r *rig) publish(session, request string, e loquat.Event) {
	r.t.Helper()
	r.update(func(tx *store.Tx) error {
		h, err := tx.Head(session)
		if err != nil {
			return err
		}
		q, err := tx.Request(request)
		if err != nil {
			return err
		}
		if e.Type == loquat.RequestCompleted {
			if err := tx.EndRequest(&q, loquat.StatusCompleted, ""); err != nil {
				return err
			}
		}
		_, err = tx.Publish(e, &h, &q)
		return err
	})
}

// remove deletes a session.
func (r *rig) remove(id string) {
	r.t.Helper()
	r.update(func(tx *store.Tx) error {
		h, err := tx.Head(id)
		if err != nil {
			return err
		}
		return tx.DeleteSession(&h)
	})
}

func (r *rig) events(q feed.Query) (feed.Window, error) { return r.Events(r.t.Context(), q) }

// expand returns the event with its session as clients read it.
func (r *rig) expand(rec loquat.Record) loquat.Event {
	r.t.Helper()
	b, err := r.AppendEvent(r.t.Context(), nil, rec)
	if err != nil {
		r.t.Fatal(err)
	}
	var e loquat.Event
	if err := json.Unmarshal(b, &e); err != nil {
		r.t.Fatal(err)
	}
	return e
}

// waitFor polls until ok holds.
func (r *rig) waitFor(what string, ok func() bool) {
	r.t.Helper()
	for range 6000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	r.t.Fatalf("waited in vain for %s", what)
}
