package feed_test

import (
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/feed"
	"loquat/internal/store"
)

func among(list bool, sessions ...string) *store.Selection { return store.NewSelection(sessions, list) }

// types returns the events of a window, each with its session.
func typesIn(w feed.Window) string {
	var out []string
	for _, r := range w.Events {
		out = append(out, r.SessionID+" "+string(r.Type))
	}
	return strings.Join(out, ",")
}

// A follower of several sessions and of the list gets all events of the sessions, and of others
// only those that change the list.
func TestFollowSeveralSessionsAndTheList(t *testing.T) {
	r := newRig(t)
	r.create("a", nil)
	since := r.create("b", nil)
	r.appendMessage("a", "hi")
	r.appendMessage("b", "hi")
	r.create("c", nil)
	r.remove("c")
	for want, q := range map[string]feed.Query{
		"a message_appended,a checkpoint,b checkpoint,c session_deleted":                    {Since: &since, Among: among(true, "a")},
		"a message_appended,a checkpoint,b message_appended,b checkpoint":                   {Since: &since, Among: among(false, "b", "a")},
		"a checkpoint,b checkpoint,c session_deleted":                                       {Since: &since, Among: among(true)},
		"a message_appended,a checkpoint,b message_appended,b checkpoint,c session_deleted": {Since: &since, Among: among(true, "a", "b")},
	} {
		if w, err := r.events(q); err != nil || typesIn(w) != want {
			t.Errorf("%s, %v, want %s", typesIn(w), err, want)
		}
		fl := r.follow(t.Context(), q)
		if w, err := fl.Next(t.Context(), fl.Start(), time.Now().Add(late)); err != nil || typesIn(w) != want {
			t.Errorf("follower: %s, %v, want %s", typesIn(w), err, want)
		}
	}
	if w, err := r.events(feed.Query{Among: among(true)}); err != nil || !w.Bootstrap || w.Cursor != r.Latest() {
		t.Errorf("the list without since: %+v, %v", w, err)
	}
}

// The deletion of one of several sessions ends a follower, after its session_deleted, even if
// others go on having events. A deletion elsewhere in the list does not.
func TestDeletionOfOneOfSeveral(t *testing.T) {
	r := newRig(t)
	r.create("a", nil)
	r.create("b", nil)
	since := r.create("c", nil)
	fl := r.follow(t.Context(), feed.Query{Since: &since, Among: among(true, "a", "b")})
	time.AfterFunc(soon, func() {
		r.remove("c")
		r.update(func(tx *store.Tx) error { // one commit, so that the deletion is not the last of its window
			h, err := tx.Head("a")
			if err != nil {
				return err
			}
			if err := tx.DeleteSession(&h); err != nil {
				return err
			}
			if h, err = tx.Head("b"); err != nil {
				return err
			}
			return appendTo(tx, &h, "still here")
		})
	})
	var got []string
	cursor := fl.Start()
	for {
		w, err := fl.Next(t.Context(), cursor, time.Now().Add(late))
		if err != nil {
			if loquat.CodeOf(err) != loquat.CodeNotFound || !strings.Contains(err.Error(), `"a"`) {
				t.Errorf("it ends with %v", err)
			}
			break
		}
		if len(w.Events) == 0 {
			t.Fatal("it goes on")
		}
		got, cursor = append(got, typesIn(w)), w.Cursor
	}
	if all := strings.Join(got, ","); all != "c session_deleted,a session_deleted,b message_appended" {
		t.Errorf("it got %s", all)
	}
	if _, err := r.events(feed.Query{Since: &cursor, Among: among(false, "a", "b")}); loquat.CodeOf(err) != loquat.CodeNotFound {
		t.Errorf("the next poll: %v", err)
	}
	if w, err := r.events(feed.Query{Since: &since, Among: among(false, "a", "b")}); err != nil || typesIn(w) != "a session_deleted,b message_appended" {
		t.Errorf("a poll from before: %s, %v", typesIn(w), err)
	}
	if _, err := r.events(feed.Query{Since: &since, Among: among(true, "b", "nobody")}); loquat.CodeOf(err) != loquat.CodeNotFound || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("an unknown session: %v", err)
	}
}

// Without since, several sessions start where the first of their running requests does.
func TestStartOfSeveral(t *testing.T) {
	r := newRig(t)
	idle := r.create("idle", nil)
	running := r.create("running", nil)
	r.create("late", nil)
	if at, err := r.ResolveCursor(t.Context(), feed.Query{Among: among(false, "idle", "running")}); err != nil || at != r.Latest() {
		t.Errorf("idle sessions start at %s, %v; the log ends at %s", at, err, r.Latest())
	}
	r.enqueue("running", "q")
	r.publish("running", "q", loquat.Event{Type: loquat.RequestStarted})
	r.appendMessage("late", "hi")
	at, err := r.ResolveCursor(t.Context(), feed.Query{Among: among(false, "idle", "running", "late")})
	if err != nil || at != running || at == idle {
		t.Errorf("they start at %s, %v; the running one has %s", at, err, running)
	}
}

// A follower of one session and the list is level with a log to which other sessions stream: their
// increments do not wake it, and it reads neither the database nor their part of the tail.
func TestIncrementsOfOthersDoNotWakeAFollowerOfTheList(t *testing.T) {
	r := newRig(t)
	r.create("quiet", nil)
	since := r.create("busy", nil)
	fl := r.follow(t.Context(), feed.Query{Since: &since, Among: among(true, "quiet")})
	if w, err := fl.Next(t.Context(), since, time.Now()); err != nil || len(w.Events) != 0 {
		t.Fatalf("%+v, %v", w, err)
	}
	woken := 0
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
		if fl.Woken() {
			woken++
		}
	}
	if woken > 0 {
		t.Errorf("40 commits of increments of another session woke it %d times", woken)
	}
	before := r.reads.Load()
	r.appendMessage("busy", "the end")
	if w, err := fl.Next(t.Context(), since, time.Now().Add(late)); err != nil || typesIn(w) != "busy checkpoint" {
		t.Errorf("%s, %v", typesIn(w), err)
	}
	if n := r.reads.Load() - before; n != 0 {
		t.Errorf("it read the database %d times", n)
	}
}

// A follower of several sessions that lags behind the tail gets the increments of all of them.
func TestLaggingFollowerOfSeveralSessions(t *testing.T) {
	r := newRig(t)
	since := r.create("other", nil)
	for _, id := range []string{"a", "b"} {
		r.create(id, nil)
		r.enqueue(id, "request-"+id)
		r.publish(id, "request-"+id, loquat.Event{Type: loquat.RequestStarted})
	}
	for range 3 {
		for _, id := range []string{"a", "b"} {
			r.publish(id, "request-"+id, loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Content: "x"}})
		}
	}
	for range 40 { // the tail drops what was before
		r.change("other", func(tx *store.Tx, h *store.Head) error {
			for range 1000 {
				if _, err := tx.Publish(loquat.Event{Type: loquat.MessageModified}, h, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, selection := range []*store.Selection{among(false, "a", "b"), among(true, "a", "b")} {
		want, err := r.store.Events(t.Context(), since, store.Filter{Among: selection}, store.Bounds{Events: 5000})
		if err != nil {
			t.Fatal(err)
		}
		fl := r.follow(t.Context(), feed.Query{Since: &since, Among: selection, Raw: true})
		var got []loquat.Record
		for cursor := fl.Start(); ; {
			w, err := fl.Next(t.Context(), cursor, time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			if len(w.Events) == 0 {
				break
			}
			got, cursor = append(got, w.Events...), w.Cursor
		}
		if had, wanted := typesIn(feed.Window{Events: got}), typesIn(feed.Window{Events: want}); had != wanted {
			t.Errorf("it got %s, want %s", had, wanted)
		}
	}
}

// Retention that removes events of a session which the follower did not ask for makes only the list
// too old.
func TestRetentionAndSeveral(t *testing.T) {
	r := newRig(t)
	old := r.create("a", nil)
	r.create("b", nil)
	r.appendMessage("b", "hi")
	if err := r.store.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		q    feed.Query
		gone bool
	}{{feed.Query{Since: &old, Among: among(false, "a")}, false}, {feed.Query{Since: &old, Among: among(true, "a")}, true}, {feed.Query{Since: &old, Among: among(false, "a", "b")}, true}} {
		if _, err := r.events(c.q); (loquat.CodeOf(err) == loquat.CodeGone) != c.gone {
			t.Errorf("%+v: %v", *c.q.Among, err)
		}
	}
}
