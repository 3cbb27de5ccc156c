// Package storetest contains the tests that every driver of a store must pass.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat"
	"loquat/internal/store"
)

// Open opens the database of a test. After a close it opens the same database again. The end
// of the test closes it.
type Open func(t *testing.T) store.Driver

// Version is the version of the program for which a driver that shares its log is opened.
const Version = "v9"

// Run runs all tests, several at a time, because they wait for the database most of the time. open is
// called once per test and returns the function that opens the test's database.
func Run(t *testing.T, open func(t *testing.T) Open) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Open)
	}{
		{"ids follow commits", idsFollowCommits},
		{"ids continue after reopening", idsSurvive},
		{"a copy gets a log of its own", copyIsItsOwn},
		{"a failed update leaves nothing", failedUpdate},
		{"a failed update does not affect its batch", failedUpdateInBatch},
		{"a failed statement does not affect its batch", failedStatementInBatch},
		{"an update whose caller gave up is dropped", abandonedUpdate},
		{"concurrent updates all land, in one order", concurrentUpdates},
		{"followers miss nothing", followers},
		{"a batch reads its own events", ownEvents},
		{"filters", filters},
		{"text of any bytes", anyText},
		{"windows end at their bounds", windowBounds},
		{"messages against a model", messagesModel},
		{"sessions at old revisions", oldRevisions},
		{"long histories", longHistories},
		{"copies of long sessions", copies},
		{"large texts", largeTexts},
		{"unclean large texts", uncleanLargeTexts},
		{"events with messages", eventsWithMessages},
		{"windows of events with messages", eventsInWindows},
		{"a large text of a failed update", failedLargeText},
		{"large texts past the retention", agedLargeTexts},
		{"checkpoints and cursors", checkpoints},
		{"lists of sessions", lists},
		{"pages of lists that change", changingLists},
		{"a list of which more has changed than a page holds", manyChanges},
		{"a list over the retention", listOverRetention},
		{"assets and their owners", assets},
		{"uses of assets against a model", assetUses},
		{"requests", requests},
		{"a request that starts at once", startAtOnce},
		{"the queue of a session", queue},
		{"alternatives", alternatives},
		{"orphans", orphans},
		{"sessions to discard", discarded},
		{"the only node", onlyNode},
		{"deleting a session", deletion},
		{"cleanup of ended requests", cleanup},
		{"retention", retention},
		{"idempotent replays", replays},
		{"credentials and pairing codes", credentials},
		{"states of plugins", pluginStates},
		{"push subscriptions", pushSubscriptions},
		{"usage", usageRows},
		{"meters", meters},
		{"deliveries of webhooks", webhookDeliveries},
		{"audit", auditEntries},
		{"searches against a scan", searching},
		{"searches with many results", manyResults},
		{"searches in long texts", searchLongText},
		{"closing", closing},
	} {
		t.Run(c.name, func(t *testing.T) { t.Parallel(); c.test(t, open(t)) })
	}
}

func start(t *testing.T, open Open) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), open(t), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func update(t *testing.T, s *store.Store, fn func(*store.Tx) error) {
	t.Helper()
	if err := s.Update(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func view(t *testing.T, s *store.Store, fn func(*store.Reader) error) {
	t.Helper()
	if err := s.View(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

// create creates a session with messages m0, m1, …
func create(t *testing.T, s *store.Store, id string, messages int) {
	t.Helper()
	update(t, s, func(tx *store.Tx) error {
		h, err := tx.CreateSession(id, "default", loquat.Object{}.Set("name", id))
		if err != nil {
			return err
		}
		for i := range messages {
			if _, err := tx.AppendMessage(&h, message(tx, fmt.Sprintf("m%d", i))); err != nil {
				return err
			}
		}
		if _, err := tx.Publish(loquat.Event{Type: loquat.SessionCreated, AgentID: h.AgentID}, &h, nil); err != nil {
			return err
		}
		return tx.Checkpoint(&h, nil, false)
	})
}

// give makes a session one of a user.
func give(t *testing.T, s *store.Store, id, user string) {
	t.Helper()
	update(t, s, func(tx *store.Tx) error {
		h, err := tx.Head(id)
		if err == nil {
			err = tx.SetUser(&h, user)
		}
		return err
	})
}

func message(tx *store.Tx, content string) loquat.Message {
	return loquat.Message{ID: "id-" + content, Role: loquat.RoleUser, Content: content, CreatedAt: tx.Now}
}

// say publishes a partial event of a session.
func say(tx *store.Tx, sessionID, text string) (loquat.EventID, error) {
	h, err := tx.Head(sessionID)
	if err != nil {
		return 0, err
	}
	return tx.Publish(partial(text), &h, nil)
}

func partial(text string) loquat.Event {
	return loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Role: loquat.RoleAssistant, Content: text}}
}

func texts(t *testing.T, records []loquat.Record) []string {
	t.Helper()
	var out []string
	for _, r := range records {
		e, err := r.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == loquat.Partial {
			out = append(out, e.Message.Content)
		}
	}
	return out
}

func events(t *testing.T, s *store.Store, since loquat.EventID, f store.Filter, limit int) []loquat.Record {
	t.Helper()
	records, err := s.Events(t.Context(), since, f, store.Bounds{Events: limit})
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func idsFollowCommits(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 0)
	before := s.Last()
	var first, second loquat.EventID
	update(t, s, func(tx *store.Tx) (err error) {
		if first, err = say(tx, "a", "x"); err != nil {
			return err
		}
		second, err = say(tx, "a", "y")
		return err
	})
	if first != before+1 || second != before+2 || s.Last() != second {
		t.Errorf("ids %s, %s after %s; last is %s", first, second, before, s.Last())
	}
}

// The first opening of a copy gives it a new id and continues far above the ids of the
// original. Later openings change nothing.
func copyIsItsOwn(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 1)
	first, last := s.ID(), s.Last()
	if s.ServerID() != first || s.Foreign(last) || s.Foreign(last+1) {
		t.Errorf("server %q of store %q; ids are foreign", s.ServerID(), first)
	}
	copied := func() {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		driver := open(t)
		err := driver.Write(t.Context(), func(q store.SQL) error {
			at, images, err := store.MarkCopy(q)
			if at != last || len(images) != 0 {
				t.Errorf("a copy up to %s with images %v, want %s", at, images, last)
			}
			return err
		})
		if err := errors.Join(err, driver.Close()); err != nil {
			t.Fatal(err)
		}
		s = start(t, open)
	}
	copied()
	second, next := s.ID(), s.Last()
	if second == first || s.ServerID() != first || next <= last+1 {
		t.Errorf("the copy is %q of server %q and goes on after %s", second, s.ServerID(), next)
	}
	for id, foreign := range map[loquat.EventID]bool{last: false, last + 1: true, next - 1: true, next: false} {
		if s.Foreign(id) != foreign {
			t.Errorf("%s is foreign: %v", id, !foreign)
		}
	}
	create(t, s, "b", 0)
	if got := events(t, s, last, store.Filter{}, 10); len(got) != 2 || got[0].ID != next+1 {
		t.Errorf("after the copy's last event come %v", got)
	}
	last = s.Last()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s = start(t, open); s.ID() != second || s.Last() != last {
		t.Errorf("the next start makes it %q again, at %s", s.ID(), s.Last())
	}
	copied()
	if s.ServerID() != first || s.Last() <= last || !s.Foreign(next-1) || !s.Foreign(last+1) {
		t.Errorf("a copy of the copy is of server %q and goes on after %s", s.ServerID(), s.Last())
	}
}

func idsSurvive(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 1)
	id, last := s.ID(), s.Last()
	update(t, s, func(tx *store.Tx) error {
		h, err := tx.Head("a")
		if err == nil {
			err = tx.DeleteSession(&h)
		}
		return err
	})
	if err := s.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = start(t, open)
	if s.ID() != id || s.Last() != last+1 {
		t.Errorf("after reopening: id %q, last %s; want %q, %s", s.ID(), s.Last(), id, last+1)
	}
	create(t, s, "b", 0)
	if got := events(t, s, last+1, store.Filter{}, 10); len(got) != 2 || got[0].ID != last+2 {
		t.Errorf("ids after reopening do not go on: %v", got)
	}
}

var errRefused = errors.New("refused")

func failedUpdate(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 0)
	last := s.Last()
	err := s.Update(t.Context(), func(tx *store.Tx) error {
		if _, err := say(tx, "a", "lost"); err != nil {
			return err
		}
		return loquat.Errorf(loquat.CodeConflict, "refused")
	})
	if loquat.CodeOf(err) != loquat.CodeConflict {
		t.Errorf("got error %v", err)
	}
	if s.Last() != last || len(events(t, s, last, store.Filter{}, 10)) != 0 {
		t.Error("an update that failed left events")
	}
	update(t, s, func(tx *store.Tx) error { _, err := say(tx, "a", "kept"); return err })
	if got := texts(t, events(t, s, last, store.Filter{}, 10)); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("got %q", got)
	}
}

// updateTogether blocks the committer with one update while n others gather, and returns the
// errors of these.
func updateTogether(t *testing.T, s *store.Store, n int, fn func(tx *store.Tx, i int) error) []error {
	hold, held := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_ = s.Update(t.Context(), func(*store.Tx) error { close(held); <-hold; return nil })
	})
	<-held
	errs := make([]error, n)
	for i := range n {
		all.Go(func() {
			errs[i] = s.Update(t.Context(), func(tx *store.Tx) error { return fn(tx, i) })
		})
	}
	time.Sleep(50 * time.Millisecond) // lets them gather; the result does not depend on it
	close(hold)
	all.Wait()
	return errs
}

// failedUpdateInBatch gathers updates, some of which fail before they write, and some after.
func failedUpdateInBatch(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 0)
	since := s.Last()
	const n = 60
	errs := updateTogether(t, s, n, func(tx *store.Tx, i int) error {
		if i%3 == 1 {
			return errRefused
		}
		_, err := say(tx, "a", fmt.Sprint(i))
		if err == nil && i%6 == 2 {
			panic("a programmer's mistake")
		}
		if err == nil && i%3 == 2 {
			err = errRefused
		}
		return err
	})
	kept := map[string]bool{}
	for _, text := range texts(t, events(t, s, since, store.Filter{}, 1000)) {
		if kept[text] {
			t.Errorf("%s was published twice", text)
		}
		kept[text] = true
	}
	for i := range n {
		if failed := errs[i] != nil; failed != (i%3 != 0) || kept[fmt.Sprint(i)] == failed {
			t.Errorf("update %d: error %v, kept %v", i, errs[i], kept[fmt.Sprint(i)])
		}
	}
}

// failedStatementInBatch gathers updates, some of which use a session id that is taken. Of
// these, half ignore the error of the statement.
func failedStatementInBatch(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 0)
	since := s.Last()
	const n = 24
	errs := updateTogether(t, s, n, func(tx *store.Tx, i int) error {
		if _, err := say(tx, "a", fmt.Sprint(i)); err != nil || i%4 < 2 {
			return err
		}
		_, err := tx.CreateSession("a", "default", nil)
		if err == nil {
			t.Error("a taken session id was accepted")
		}
		if i%4 == 3 {
			return nil
		}
		return err
	})
	kept := texts(t, events(t, s, since, store.Filter{}, 1000))
	if len(kept) != n/2 {
		t.Errorf("%d of %d updates were kept: %v", len(kept), n/2, kept)
	}
	for i := range n {
		if failed := errs[i] != nil; failed != (i%4 >= 2) || slices.Contains(kept, fmt.Sprint(i)) == failed {
			t.Errorf("update %d: error %v", i, errs[i])
		}
	}
	if err := s.Healthy(); err != nil {
		t.Errorf("the store is not healthy: %v", err)
	}
}

func abandonedUpdate(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 0)
	since := s.Last()
	hold, held := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_ = s.Update(t.Context(), func(*store.Tx) error { close(held); <-hold; return nil })
	})
	<-held
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- s.Update(ctx, func(tx *store.Tx) error { _, err := say(tx, "a", "late"); return err })
	}()
	time.Sleep(10 * time.Millisecond)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(hold)
	all.Wait()
	update(t, s, func(*store.Tx) error { return nil })
	if got := events(t, s, since, store.Filter{}, 10); len(got) != 0 {
		t.Errorf("an abandoned update was run: %v", got)
	}
}

func concurrentUpdates(t *testing.T, open Open) {
	s := start(t, open)
	const writers, each = 16, 40
	for w := range writers {
		create(t, s, fmt.Sprint("s", w), 0)
	}
	since := s.Last()
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				if err := s.Update(t.Context(), func(tx *store.Tx) error {
					_, err := say(tx, fmt.Sprint("s", w), fmt.Sprint(i))
					return err
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	records := events(t, s, since, store.Filter{}, writers*each+1)
	if len(records) != writers*each {
		t.Fatalf("%d events of %d", len(records), writers*each)
	}
	for i, r := range records {
		if r.ID != since+loquat.EventID(i)+1 {
			t.Fatalf("event %d has id %s: a gap or a repeat", i, r.ID)
		}
	}
	for w := range writers {
		got := texts(t, events(t, s, since, store.Filter{SessionID: fmt.Sprint("s", w)}, each+1))
		for i, text := range got {
			if text != fmt.Sprint(i) {
				t.Fatalf("writer %d: %q at %d", w, text, i)
			}
		}
	}
}

func followers(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 0)
	create(t, s, "b", 0)
	give(t, s, "b", "ann")
	since := s.Last()
	const total = 300
	var all sync.WaitGroup
	filters := []store.Filter{{}, {SessionID: "a"}, {SessionID: "b"}, {User: "ann"}, {Among: store.NewSelection([]string{"b", "a"}, false)}, {Among: store.NewSelection([]string{"b"}, true)}}
	for f, filter := range filters {
		all.Go(func() {
			watch, want := s.Watch(filter), total
			if filter.SessionID != "" || filter.User != "" {
				want = total / 2
			}
			if filter.Among != nil {
				want = len(filter.Among.Sessions) * total / 2
			}
			defer watch.Stop()
			at, seen := since, 0
			for seen < want {
				records, err := s.Events(t.Context(), at, filter, store.Bounds{Events: 1 + rand.IntN(20)})
				if err != nil {
					t.Error(err)
					return
				}
				if len(records) == 0 {
					select {
					case <-watch.C():
					case <-time.After(20 * time.Second):
						t.Errorf("follower %d was not woken after %d of %d", f, seen, want)
						return
					}
				}
				for _, r := range records {
					if r.ID <= at {
						t.Errorf("follower %d got %s after %s", f, r.ID, at)
					}
					at = r.ID
					seen++
				}
			}
		})
	}
	for i := range total {
		update(t, s, func(tx *store.Tx) error { _, err := say(tx, []string{"a", "b"}[i%2], "x"); return err })
	}
	all.Wait()
}

func textsAndCheckpoints(t *testing.T, records []loquat.Record) string {
	t.Helper()
	var out []string
	for _, r := range records {
		if out = append(out, texts(t, []loquat.Record{r})...); r.Type == loquat.Checkpoint {
			out = append(out, "checkpoint of "+r.SessionID)
		}
	}
	return strings.Join(out, ",")
}

// filterCases are filters with what they select of the events that filters stores.
var filterCases = []struct {
	filter store.Filter
	want   string
}{
	{store.Filter{}, "checkpoint of a,request of a,session a,request of b,session b"},
	{store.Filter{SessionID: "a"}, "checkpoint of a,request of a,session a"},
	{store.Filter{RequestID: "r-b"}, "request of b"},
	{store.Filter{SessionID: "b", RequestID: "r-b"}, "request of b"},
	{store.Filter{SessionID: "a", RequestID: "r-b"}, ""},
	{store.Filter{SessionID: "nobody"}, ""},
	{store.Filter{User: "ann \"☂\""}, "checkpoint of a,request of a,session a"},
	{store.Filter{User: "bob"}, ""},
	{store.Filter{Among: store.NewSelection([]string{"b", "a", "a"}, false)}, "checkpoint of a,request of a,session a,request of b,session b"},
	{store.Filter{Among: store.NewSelection([]string{"nobody", "b"}, false)}, "request of b,session b"},
	{store.Filter{Among: store.NewSelection([]string{"b"}, true)}, "checkpoint of a,request of b,session b"},
	{store.Filter{Among: store.NewSelection(nil, true)}, "checkpoint of a"},
	{store.Filter{Among: store.NewSelection([]string{"nobody"}, false)}, ""},
	{store.Filter{Among: &store.Selection{List: true, User: "ann \"☂\""}}, "checkpoint of a"},
	{store.Filter{Among: &store.Selection{List: true, User: "bob"}}, ""},
	{store.Filter{Among: &store.Selection{List: true, User: "bob", Sessions: []string{"b"}}}, "request of b,session b"},
	{store.Filter{Among: &store.Selection{List: true, User: "bob", Sessions: []string{"a"}}}, "checkpoint of a,request of a,session a"},
	{store.Filter{RequestID: "nobody"}, ""},
}

func filters(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 0)
	create(t, s, "b", 0)
	since := s.Last()
	update(t, s, func(tx *store.Tx) error {
		for _, id := range []string{"a", "b"} {
			h, err := tx.Head(id)
			if err != nil {
				return err
			}
			if id == "a" {
				if err := tx.SetUser(&h, "ann \"☂\""); err != nil {
					return err
				}
				if err := tx.Checkpoint(&h, nil, false); err != nil {
					return err
				}
			}
			q := store.Request{Request: loquat.Request{RequestID: "r-" + id}}
			if err := tx.EnqueueRequest(&h, &q, store.AtTheEnd); err != nil {
				return err
			}
			if _, err := tx.Publish(partial("request of "+id), &h, &q); err != nil {
				return err
			}
			if _, err := tx.Publish(partial("session "+id), &h, nil); err != nil {
				return err
			}
		}
		return nil
	})
	check := func(s *store.Store) {
		for _, c := range filterCases {
			if got := textsAndCheckpoints(t, events(t, s, since, c.filter, 10)); got != c.want {
				t.Errorf("%+v: %q, want %q", c.filter, got, c.want)
			}
		}
	}
	check(s) // from memory
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(start(t, open)) // from the database
}

func windowBounds(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 0)
	since := s.Last()
	big := strings.Repeat("x", store.WindowBytes/2)
	update(t, s, func(tx *store.Tx) error {
		for _, text := range []string{"one", "two", big, big, strings.Repeat("y", store.WindowBytes+1), "last"} {
			if _, err := say(tx, "a", text); err != nil {
				return err
			}
		}
		return nil
	})
	check := func(s *store.Store) {
		at := since
		for _, want := range []int{3, 1, 1, 1, 0} {
			records := events(t, s, at, store.Filter{SessionID: "a"}, 100)
			if len(records) != want {
				t.Fatalf("a window of %d events, want %d", len(records), want)
			}
			if want > 0 {
				at = records[want-1].ID
			}
		}
		if got := texts(t, events(t, s, since, store.Filter{}, 2)); !slices.Equal(got, []string{"one", "two"}) {
			t.Errorf("limit 2: %q", got)
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(start(t, open))
}

// ownEvents checks that a batch of any size reads its own events, and that later reads find
// each event once and in order.
func ownEvents(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 0)
	for _, n := range []int{0, 1, 2, 3, 63, 64, 65, 200} {
		before := s.Last()
		var first loquat.EventID
		update(t, s, func(tx *store.Tx) error {
			h, q, err := enqueue(tx, "a", fmt.Sprint("request-", n), loquat.BusyQueue, store.AtTheEnd)
			if err != nil {
				return err
			}
			var want []string
			for i := range n {
				want = append(want, fmt.Sprint(i))
				if _, err := tx.Publish(partial(want[i]), &h, &q); err != nil {
					return err
				}
			}
			records, err := requestEvents(tx, q, before)
			if err != nil {
				return err
			}
			if got := texts(t, records); !slices.Equal(got, want) {
				t.Errorf("a batch of %d events reads %v", n, got)
			}
			if n > 0 {
				first = records[0].ID
			}
			_, err = tx.Publish(partial("after the read"), &h, &q)
			return err
		})
		records := events(t, s, before, store.Filter{SessionID: "a"}, 1000)
		if len(records) != n+1 || n > 0 && records[0].ID != first {
			t.Errorf("after a batch of %d events the log has %d", n, len(records))
		}
	}
}
