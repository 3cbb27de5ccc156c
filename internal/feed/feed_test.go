package feed_test

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loquat"
	"loquat/internal/feed"
	"loquat/internal/store"
)

func TestWhereAQueryBegins(t *testing.T) {
	r := newRig(t)
	r.create("s", nil)
	r.create("other", nil)
	r.enqueue("s", "q")
	if cursor, err := r.ResolveCursor(t.Context(), feed.Query{RequestID: "q"}); err != nil || cursor != r.store.Last() {
		t.Errorf("a queued request begins at %s, %v", cursor, err)
	}
	started := r.store.Last() + 1
	r.publish("s", "q", loquat.Event{Type: loquat.RequestStarted})
	r.appendMessage("s", "answer") // moves the cursor of the session
	r.publish("s", "q", loquat.Event{Type: loquat.RequestCompleted})
	completed := r.store.Last()
	zero, beyond := loquat.EventID(0), completed+1000

	for _, c := range []struct {
		name        string
		query       feed.Query
		first, last loquat.EventID // of the window
	}{
		{"since the beginning", feed.Query{Since: &zero}, 1, completed},
		{"since the beginning, up to an event", feed.Query{Since: &zero, Until: 2}, 1, 2},
		{"since an event, of a session", feed.Query{Since: &started, SessionID: "s"}, started + 1, completed},
		{"of a session: what its snapshot does not hold", feed.Query{SessionID: "s"}, completed, completed},
		{"of a request: all of it", feed.Query{RequestID: "q"}, started, completed},
		{"of a request that is of the session", feed.Query{RequestID: "q", SessionID: "s", Since: &zero}, started, completed},
	} {
		c.query.Raw = true
		w, err := r.events(c.query)
		if err != nil || len(w.Events) == 0 || w.Events[0].ID != c.first || w.Cursor != c.last || w.Bootstrap {
			t.Errorf("%s: %+v, %v", c.name, w, err)
		}
	}
	if w, err := r.events(feed.Query{}); err != nil || !w.Bootstrap || len(w.Events) != 0 || w.Cursor != completed {
		t.Errorf("bootstrap: %+v, %v", w, err)
	}
	for _, c := range []struct {
		query feed.Query
		code  loquat.Code
	}{
		{feed.Query{Since: &beyond}, loquat.CodeGone},
		{feed.Query{SessionID: "nobody"}, loquat.CodeNotFound},
		{feed.Query{RequestID: "nobody"}, loquat.CodeNotFound},
		{feed.Query{RequestID: "nobody", Since: &zero, Wait: time.Minute}, loquat.CodeNotFound},
		{feed.Query{RequestID: "q", SessionID: "other"}, loquat.CodeNotFound},
	} {
		if _, err := r.events(c.query); loquat.CodeOf(err) != c.code {
			t.Errorf("%+v: %v, want %s", c.query, err, c.code)
		}
	}
}

// Retention removes events that a cursor needs. A cursor above them is still good, with a
// filter and without, whether the feed knows the filter or not.
func TestRemovedEvents(t *testing.T) {
	r := newRig(t)
	cursor := r.create("old", nil)
	r.enqueue("old", "q")
	r.publish("old", "q", loquat.Event{Type: loquat.RequestStarted})
	r.publish("old", "q", loquat.Event{Type: loquat.RequestCompleted})
	r.appendMessage("old", "next") // retention spares what is above the session's cursor
	young, zero := r.create("young", nil), loquat.EventID(0)
	read := func(when string, want map[string]bool) {
		t.Helper()
		for name, q := range map[string]feed.Query{
			"all":               {Since: &zero},
			"old session":       {Since: &cursor, SessionID: "old"},
			"old request":       {Since: &cursor, RequestID: "q"},
			"start of request":  {RequestID: "q"},
			"young":             {Since: &young},
			"snapshot of young": {SessionID: "young"},
		} {
			for range 2 { // the second finds the filter in the cache
				_, err := r.events(q)
				_, resolve := r.ResolveCursor(t.Context(), q)
				if gone := want[name]; gone != (loquat.CodeOf(err) == loquat.CodeGone) || gone != (loquat.CodeOf(resolve) == loquat.CodeGone) {
					t.Errorf("%s, %s: %v, %v; want gone %v", when, name, err, resolve, gone)
				}
			}
		}
	}
	read("before", nil)
	time.Sleep(2 * time.Millisecond) // older than the retention
	if err := r.store.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	read("after", map[string]bool{"all": true, "old session": true, "old request": true, "start of request": true})
}

func TestWaiting(t *testing.T) {
	r := newRig(t)
	r.create("s", nil)
	r.create("other", nil)
	since := r.store.Last()
	began := time.Now()
	if w, err := r.events(feed.Query{SessionID: "s", Wait: 30 * time.Millisecond}); err != nil || len(w.Events) != 0 || w.Cursor == 0 || time.Since(began) < 30*time.Millisecond {
		t.Errorf("a wait for nothing: %+v, %v", w, err)
	}
	var all sync.WaitGroup
	for _, q := range []feed.Query{{Since: &since}, {SessionID: "s"}, {SessionID: "s", Since: &since, OmitSession: true}} {
		q.Wait = time.Minute
		all.Go(func() {
			w, err := r.events(q)
			if err != nil || len(w.Events) == 0 || w.Events[0].SessionID != "s" && q.SessionID != "" {
				t.Errorf("%+v: %+v, %v", q, w, err)
			}
			if q.OmitSession && len(w.Events) > 0 && w.Events[0].Rev != 0 {
				t.Error("the session was to be left out")
			}
		})
	}
	for _, id := range []string{"other", "s"} {
		time.Sleep(20 * time.Millisecond) // let them wait; nothing depends on it
		r.appendMessage(id, "x")
	}
	all.Wait()
}

// Close ends the waits of all followers, but each gets the events before it first.
func TestClose(t *testing.T) {
	r := newRig(t)
	since := r.create("s", nil)
	const followers = 20
	var all sync.WaitGroup
	var seen [followers]loquat.EventID
	for i := range followers {
		all.Go(func() {
			cursor := since
			for range 100 {
				w, err := r.events(feed.Query{SessionID: "s", Since: &cursor, Wait: time.Minute})
				if err != nil {
					if loquat.CodeOf(err) != loquat.CodeUnavailable {
						t.Errorf("after Close: %v", err)
					}
					break
				}
				cursor = w.Cursor
			}
			seen[i] = cursor
		})
	}
	r.appendMessage("s", "last")
	last := r.store.Last()
	r.Close()
	r.Close()
	all.Wait()
	for i, cursor := range seen {
		if cursor != last {
			t.Errorf("follower %d ended at %s, not at %s", i, cursor, last)
		}
	}
	if w, err := r.events(feed.Query{Since: &since}); err != nil || w.Cursor != last {
		t.Errorf("a poll without wait after Close: %+v, %v", w, err)
	}
	if _, err := r.events(feed.Query{Since: &last, Wait: time.Minute}); loquat.CodeOf(err) != loquat.CodeUnavailable {
		t.Errorf("a wait after Close: %v", err)
	}
}

// An event that is published between the last read of a follower and Close is read.
func TestCloseAfterTheLastRead(t *testing.T) {
	r := newRig(t)
	r.create("s", nil)
	for range 20 { // the follower may learn of both at the same time, and takes either
		f, since, once := feed.New(r.store), r.store.Last(), sync.Once{}
		w, err := f.Events(t.Context(), feed.Query{Since: &since, Wait: time.Minute, Reserve: func(context.Context, int) error {
			once.Do(func() { // the first read found nothing
				r.appendMessage("s", "last")
				f.Close()
			})
			return nil
		}})
		if err != nil || w.Cursor != r.store.Last() {
			t.Fatalf("%+v, %v", w, err)
		}
	}
}

func TestDeletedSession(t *testing.T) {
	r := newRig(t)
	cursor := r.create("s", nil)
	r.enqueue("s", "q")
	r.publish("s", "q", loquat.Event{Type: loquat.RequestStarted})
	waits := make(chan error)
	go func() {
		since := r.store.Last()
		_, err := r.events(feed.Query{RequestID: "q", Since: &since, Wait: time.Minute})
		waits <- err
	}()
	r.remove("s")
	if err := <-waits; loquat.CodeOf(err) != loquat.CodeNotFound {
		t.Errorf("a follower of a request of the session: %v", err)
	}
	w, err := r.events(feed.Query{SessionID: "s", Since: &cursor})
	if err != nil || len(w.Events) != 1 || w.Events[0].Type != loquat.SessionDeleted {
		t.Fatalf("a follower of the session: %+v, %v", w, err)
	}
	for _, q := range []feed.Query{
		{SessionID: "s", Since: &w.Cursor, Wait: time.Minute},
		{SessionID: "s", RequestID: "q", Since: &cursor, Wait: time.Minute},
	} {
		if _, err := r.events(q); loquat.CodeOf(err) != loquat.CodeNotFound {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// No event shows a session that was deleted, though one did a moment ago.
func TestDeletedSessionIsNotShown(t *testing.T) {
	r := newRig(t)
	since := r.create("s", nil)
	r.appendMessage("s", "secret")
	w, err := r.events(feed.Query{Since: &since, SessionID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	for _, deleted := range []bool{false, true} {
		if deleted {
			r.remove("s")
		}
		body, err := r.AppendEvent(t.Context(), nil, w.Events[0])
		var written bytes.Buffer
		if err := r.WriteEvent(t.Context(), &written, w.Events[0]); err != nil || written.String() != string(body) {
			t.Errorf("written %s, %v; appended %s", &written, err, body)
		}
		if err != nil || strings.Contains(string(body), "secret") == deleted {
			t.Errorf("deleted %v: %s, %v", deleted, body, err)
		}
	}
}

// An event carries its session as it was right after the event.
func TestSessionWithinEvents(t *testing.T) {
	r := newRig(t)
	r.create("s", nil)
	r.change("s", func(tx *store.Tx, h *store.Head) error {
		tx.Describe(h, h.AgentID, loquat.Object{}.Set("title", "one"))
		return appendTo(tx, h, "one")
	})
	for _, content := range []string{"two", strings.Repeat("x", loquat.MaxEventSession), "four"} {
		r.appendMessage("s", content)
	}
	zero := loquat.EventID(0)
	w, err := r.events(feed.Query{Since: &zero})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, rec := range w.Events {
		e := r.expand(rec)
		switch {
		case e.Type == loquat.Checkpoint:
			if e.Session != nil {
				t.Error("a checkpoint carries a session")
			}
		case e.Session == nil:
			t.Errorf("%s carries no session", e.Type)
		default:
			got = append(got, fmt.Sprintf("%s:%d:%v", e.Session.Metadata.String("title"), len(e.Session.Messages), e.Session.MessagesOmitted))
		}
	}
	want := []string{":0:false", "one:1:false", "one:2:false", "one:0:true", "one:0:true"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("sessions %v, want %v", got, want)
	}
}

// A setting may become known as a secret after the session was cached.
func TestSecretsAreHiddenFromThenOn(t *testing.T) {
	r := newRig(t)
	since := r.create("s", loquat.Object{}.Set("key", "hunter2"))
	r.appendMessage("s", "hi")
	w, err := r.events(feed.Query{Since: &since})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.expand(w.Events[0]).Session.Metadata.String("key"); got != "hunter2" {
		t.Fatalf("before: %q", got)
	}
	r.store.ShowMetadata(func(o loquat.Object) loquat.Object { return o.Clone().Set("key", "***") })
	if got := r.expand(w.Events[0]).Session.Metadata.String("key"); got != "***" {
		t.Errorf("after: %q", got)
	}
}

// Followers that are level with the log learn from memory what happens, whatever they
// filter by, so their number costs the database nothing.
func TestFollowersDoNotReadTheDatabase(t *testing.T) {
	const followers, texts = 100, 20
	r := newRig(t)
	since := r.create("s", nil)
	r.enqueue("s", "q")
	r.publish("s", "q", loquat.Event{Type: loquat.RequestStarted})
	var all sync.WaitGroup
	cursors := make([]atomic.Int64, followers)
	for i := range cursors {
		q := feed.Query{SessionID: "s", Wait: time.Minute, Push: true}
		if i%2 == 0 {
			q = feed.Query{RequestID: "q", Wait: time.Minute, Push: true}
		}
		all.Go(func() { followTo(t, r, q, since, &cursors[i]) })
	}
	level := func() bool {
		for i := range cursors {
			if cursors[i].Load() < int64(r.Latest()) {
				return false
			}
		}
		return true
	}
	r.waitFor("followers at the newest event", level)
	before := r.reads.Load()
	for i := range texts {
		r.publish("s", "q", loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Content: fmt.Sprint(i)}})
		r.waitFor("an event that all have read", level)
	}
	reads := r.reads.Load() - before
	r.publish("s", "q", loquat.Event{Type: loquat.RequestCompleted})
	all.Wait()
	if reads > 2*followers { // they may have read as much before they began to wait
		t.Errorf("%d reads for %d events to %d followers", reads, texts, followers)
	}
}

// followTo follows to the end of a request.
func followTo(t *testing.T, r *rig, q feed.Query, since loquat.EventID, cursor *atomic.Int64) {
	for {
		q.Since = &since
		w, err := r.events(q)
		if err != nil {
			t.Error(err)
			return
		}
		for _, rec := range w.Events {
			if _, err := r.AppendEvent(t.Context(), nil, rec); err != nil {
				t.Error(err)
			}
			since = rec.ID
			cursor.Store(int64(since))
			if rec.Type == loquat.RequestCompleted {
				return
			}
		}
	}
}
