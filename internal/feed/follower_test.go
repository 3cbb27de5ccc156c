package feed_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"loquat"
	"loquat/internal/feed"
	"loquat/internal/store"
)

// follow returns a follower of the query. Its waits end with ctx.
func (r *rig) follow(ctx context.Context, q feed.Query) *feed.Follower {
	r.t.Helper()
	fl, err := r.Follow(ctx, q)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(fl.Stop)
	return fl
}

const soon, late = 20 * time.Millisecond, time.Minute

// A follower reads window after window. A wait without events ends at its time, and the next
// wait goes on from there.
func TestFollower(t *testing.T) {
	r := newRig(t)
	cursor := r.create("s", nil)
	r.create("other", nil)
	fl := r.follow(t.Context(), feed.Query{SessionID: "s"})
	if fl.Start() != cursor {
		t.Fatalf("it starts at %s, not at %s", fl.Start(), cursor)
	}
	for i := range 5 {
		began := time.Now()
		if w, err := fl.Next(t.Context(), cursor, began.Add(soon)); err != nil || len(w.Events) != 0 || w.Cursor != cursor || time.Since(began) < soon {
			t.Fatalf("a wait for nothing: %+v, %v after %s", w, err, time.Since(began))
		}
		time.AfterFunc(soon, func() {
			r.appendMessage("other", "no concern of the follower")
			r.appendMessage("s", fmt.Sprint(i))
		})
		w, err := fl.Next(t.Context(), cursor, time.Now().Add(late))
		if err != nil || len(w.Events) != 2 || w.Events[0].Type != loquat.MessageAppended || w.Events[0].SessionID != "s" {
			t.Fatalf("%+v, %v", w, err)
		}
		again, err := fl.Next(t.Context(), cursor, time.Now().Add(late)) // as for want of memory
		if err != nil || len(again.Events) != 2 || again.Cursor != w.Cursor {
			t.Fatalf("the same window again: %+v, %v", again, err)
		}
		cursor = w.Cursor
	}
}

// Everything that ends a follower also ends a wait that has begun.
func TestEndOfAFollower(t *testing.T) {
	for name, c := range map[string]struct {
		query feed.Query
		end   func(r *rig, cancel func())
		check func(err error) bool
	}{
		"the context ends":                         {feed.Query{SessionID: "s"}, func(_ *rig, cancel func()) { cancel() }, func(err error) bool { return errors.Is(err, context.Canceled) }},
		"the feed closes":                          {feed.Query{SessionID: "s"}, func(r *rig, _ func()) { r.Close() }, hasCode(loquat.CodeUnavailable)},
		"the feed closes, for one of all sessions": {feed.Query{}, func(r *rig, _ func()) { r.Close() }, hasCode(loquat.CodeUnavailable)},
		"the session is deleted":                   {feed.Query{SessionID: "s"}, func(r *rig, _ func()) { r.remove("s") }, hasCode(loquat.CodeNotFound)},
		"the session of a request is deleted":      {feed.Query{RequestID: "q"}, func(r *rig, _ func()) { r.remove("s") }, hasCode(loquat.CodeNotFound)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.create("s", nil)
			r.enqueue("s", "q")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			fl := r.follow(ctx, c.query)
			time.AfterFunc(soon, func() { c.end(r, cancel) })
			cursor := fl.Start()
			for range 3 { // the deletion is an event
				w, err := fl.Next(ctx, cursor, time.Now().Add(late))
				if err != nil {
					if !c.check(err) {
						t.Errorf("it ended with %v", err)
					}
					return
				}
				cursor = w.Cursor
			}
			t.Error("it goes on")
		})
	}
}

func hasCode(code loquat.Code) func(error) bool {
	return func(err error) bool { return loquat.CodeOf(err) == code }
}

// A follower of a quiet session gets the session's next event from memory, even when the tail
// has long dropped the time of the last one.
func TestFollowerOfAQuietSessionDoesNotReadTheDatabase(t *testing.T) {
	r := newRig(t)
	cursor := r.create("quiet", nil)
	r.create("busy", nil)
	filters := []feed.Query{{SessionID: "quiet", Push: true}, {SessionID: "quiet", RequestID: "q", Since: &cursor, Push: true}}
	r.enqueue("quiet", "q")
	var followers []*feed.Follower
	for _, q := range filters {
		fl := r.follow(t.Context(), q)
		if w, err := fl.Next(t.Context(), cursor, time.Now()); err != nil || len(w.Events) != 0 {
			t.Fatalf("%+v, %v", w, err)
		}
		followers = append(followers, fl)
	}
	for range 40 {
		r.update(func(tx *store.Tx) error {
			h, err := tx.Head("busy")
			if err != nil {
				return err
			}
			for range 1000 {
				if _, err := tx.Publish(loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Content: "x"}}, &h, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	before := r.reads.Load()
	r.publish("quiet", "q", loquat.Event{Type: loquat.RequestStarted})
	for i, fl := range followers {
		w, err := fl.Next(t.Context(), cursor, time.Now().Add(late))
		if err != nil || len(w.Events) != 1 || w.Events[0].Type != loquat.RequestStarted {
			t.Errorf("%+v: %+v, %v", filters[i], w, err)
		}
	}
	if n := r.reads.Load() - before; n != 0 {
		t.Errorf("%d reads of the database", n)
	}
}

// An event costs a level follower no memory, and all followers get the same bytes.
func TestFollowersShareTheBytesOfAnEvent(t *testing.T) {
	r := newRig(t)
	r.create("s", nil)
	r.enqueue("s", "q")
	cursor := r.Latest()
	r.publish("s", "q", loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Content: "x"}})
	var shared []byte
	for _, q := range []feed.Query{{SessionID: "s"}, {RequestID: "q"}, {Since: &cursor}} {
		q.Push = true
		fl := r.follow(t.Context(), q)
		until := time.Now().Add(late)
		next := func() {
			w, err := fl.Next(t.Context(), cursor, until)
			if err != nil || len(w.Events) != 1 {
				t.Fatalf("%+v: %+v, %v", q, w, err)
			}
			frame := w.Events[0].Frame()
			if shared != nil && &frame[0] != &shared[0] {
				t.Fatal("followers have bytes of their own")
			}
			shared = frame
		}
		if n := testing.AllocsPerRun(100, next); n != 0 {
			t.Errorf("%+v: %v allocations for each event", q, n)
		}
	}
}

// A follower that waits holds nothing of its last window: neither a long list of events, nor
// the frames of the commit that the last event was part of.
func TestFollowersThatWaitHoldNoEvents(t *testing.T) {
	for name, n := range map[string]int{"one event": 1, "a long window": 100} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			cursor := r.create("s", nil)
			r.enqueue("s", "q")
			r.create("other", nil)
			r.update(func(tx *store.Tx) error {
				h, err := tx.Head("s")
				if err != nil {
					return err
				}
				for range n {
					if _, err := tx.Publish(loquat.Event{Type: loquat.RetryScheduled, Attempt: 1}, &h, nil); err != nil {
						return err
					}
				}
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			fl := r.follow(ctx, feed.Query{SessionID: "s", Since: &cursor, Push: true})
			frame, cursor := func() (weak.Pointer[byte], loquat.EventID) {
				w, err := fl.Next(ctx, cursor, time.Now().Add(late))
				if err != nil || len(w.Events) != n {
					t.Fatalf("%+v, %v", w, err)
				}
				return weak.Make(&w.Events[n-1].Frame()[0]), w.Cursor
			}()
			for range 5 { // the tail drops the events
				r.change("other", func(tx *store.Tx, h *store.Head) error {
					_, err := tx.Publish(loquat.Event{Type: loquat.ErrorEvent, Detail: strings.Repeat("x", 4<<20)}, h, nil)
					return err
				})
			}
			ended := make(chan error)
			go func() {
				_, err := fl.Next(ctx, cursor, time.Now().Add(late))
				ended <- err
			}()
			for i := 0; i < 100 && frame.Value() != nil; i++ {
				time.Sleep(soon)
				runtime.GC()
			}
			if frame.Value() != nil {
				t.Error("the frame of the last event is still held")
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// A client that is cut off within a window, and resumes with another, never shows the end of a reply
// without its beginning.
func TestResumedFollowersShowWholeDrafts(t *testing.T) {
	r := newRig(t)
	start := r.create("s", nil)
	r.create("other", nil)
	r.enqueue("s", "q")
	partial := func(text string) loquat.Event {
		return loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Role: loquat.RoleAssistant, Content: text}}
	}
	for range 10 {
		r.publish("s", "q", partial("one "))
		r.appendMessage("other", "between")
	}
	r.publish("s", "q", partial("two "))
	r.publish("s", "q", loquat.Event{Type: loquat.Final, Messages: []loquat.Message{{ID: "m", Role: loquat.RoleAssistant, Content: strings.Repeat("one ", 10) + "two "}}})
	r.publish("s", "q", loquat.Event{Type: loquat.RequestCompleted})

	read := func(since loquat.EventID) []loquat.Record {
		w, err := r.follow(t.Context(), feed.Query{Since: &since, Push: true}).Next(t.Context(), since, time.Now().Add(late))
		if err != nil {
			t.Fatal(err)
		}
		return w.Events
	}
	first := read(start)
	for cut := range len(first) - 1 {
		shown := ""
		seen := append(first[:cut+1:cut+1], read(first[cut].ID)...)
		for _, rec := range seen {
			if rec.Type != loquat.Partial {
				continue
			}
			shown += r.expand(rec).Message.Content
			if !strings.HasPrefix(strings.Repeat("one ", 10)+"two ", shown) {
				t.Fatalf("a client that was cut off after %s %s shows %q", first[cut].ID, first[cut].Type, shown)
			}
		}
	}
}
