package storetest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/store"
)

func enqueue(tx *store.Tx, sessionID, requestID, onBusy string, at store.QueuePlace) (store.Head, store.Request, error) {
	h, err := tx.Head(sessionID)
	if err != nil {
		return h, store.Request{}, err
	}
	q := store.Request{Request: loquat.Request{RequestID: requestID}, Send: []byte(`{}`), BodyHash: [32]byte{1, 2, 3}, Answer: []byte(`{"hello":"you"}`), OnBusy: onBusy}
	return h, q, tx.EnqueueRequest(&h, &q, at)
}

// startQueued queues a request and starts it.
func startQueued(tx *store.Tx, sessionID, requestID string) (store.Head, store.Request, error) {
	h, q, err := enqueue(tx, sessionID, requestID, loquat.BusyQueue, store.AtTheEnd)
	if err != nil {
		return h, q, err
	}
	if err := tx.StartRequest(&q, "me"); err != nil {
		return h, q, err
	}
	if _, err := tx.Publish(loquat.Event{Type: loquat.RequestStarted}, &h, &q); err != nil {
		return h, q, err
	}
	return h, q, tx.CloseStep(&q)
}

func requests(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 0)
	update(t, s, func(tx *store.Tx) error {
		h, q, err := startQueued(tx, "a", "r")
		if err != nil {
			return err
		}
		_, err = tx.Publish(partial("x"), &h, &q)
		return err
	})
	update(t, s, func(tx *store.Tx) error { return endFenced(t, tx) })
	update(t, s, func(tx *store.Tx) error {
		if _, err := tx.FenceRequest("r", "me"); !errors.Is(err, store.ErrFenced) {
			t.Errorf("FenceRequest after the end: %v", err)
		}
		q, err := tx.Request("r")
		if err != nil {
			return err
		}
		if q.Status != loquat.StatusFailed || q.Error != "why" || q.EndedAt == nil {
			t.Errorf("ended request is %+v", q)
		}
		if err := tx.EndRequest(&q, loquat.StatusCompleted, ""); !errors.Is(err, store.ErrFenced) {
			t.Errorf("a second end: %v", err)
		}
		return nil
	})
}

// endFenced checks the fences of request r and what it has published, and ends it.
func endFenced(t *testing.T, tx *store.Tx) error {
	t.Helper()
	q, err := tx.FenceRequest("r", "me")
	if err != nil {
		return err
	}
	if q.Status != loquat.StatusRunning || q.StartedAt == nil || q.BodyHash != [32]byte{1, 2, 3} || string(q.Answer) != `{"hello":"you"}` {
		t.Errorf("stored request is %+v", q)
	}
	if _, err := tx.FenceRequest("r", "somebody else"); !errors.Is(err, store.ErrFenced) {
		t.Errorf("FenceRequest for another owner: %v", err)
	}
	if cancelled, err := tx.Fence(q); cancelled || err != nil {
		t.Errorf("fence of a request that runs: %v, %v", cancelled, err)
	}
	foreign := q
	foreign.Owner = "somebody else"
	if _, err := tx.Fence(foreign); !errors.Is(err, store.ErrFenced) {
		t.Errorf("fence for another owner: %v", err)
	}
	if err := tx.FlagCancelled(&q); err != nil {
		return err
	}
	if cancelled, err := tx.Fence(q); !cancelled || err != nil {
		t.Errorf("fence of a cancelled request: %v, %v", cancelled, err)
	}
	records, err := requestEvents(tx, q, q.ClosedUpTo)
	if err != nil {
		return err
	}
	if got := texts(t, records); len(records) != 1 || !slices.Equal(got, []string{"x"}) {
		t.Errorf("above the closed steps: %v", records)
	}
	first, err := tx.FirstEvent(q)
	if err != nil || first != q.ClosedUpTo {
		t.Errorf("first event %s, %v; want %s", first, err, q.ClosedUpTo)
	}
	return tx.EndRequest(&q, loquat.StatusFailed, "why")
}

// A request that starts at once differs in nothing from one that was queued and then started.
func startAtOnce(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 0)
	create(t, s, "b", 0)
	startBoth(t, s)
	var rows, fenced [2]store.Request
	update(t, s, func(tx *store.Tx) error {
		for i, id := range []string{"queued", "at once"} {
			q, err := tx.Request(id)
			if err != nil {
				return err
			}
			if first, err := tx.FirstEvent(q); err != nil || first != q.ClosedUpTo {
				t.Errorf("%s: first event %s, %v; want %s", id, first, err, q.ClosedUpTo)
			}
			if cancelled, err := tx.Fence(q); cancelled || err != nil {
				t.Errorf("%s: fence %v, %v", id, cancelled, err)
			}
			step, err := tx.FenceStep(q)
			if err != nil || step.Request.RequestID != id || step.Head.SessionID != q.SessionID || step.Head.Count != 0 || step.Queued {
				t.Errorf("%s: the step is %+v, %v", id, step, err)
			}
			foreign := q
			foreign.Owner = "somebody else"
			if _, err := tx.FenceStep(foreign); !errors.Is(err, store.ErrFenced) {
				t.Errorf("%s: a step of another owner: %v", id, err)
			}
			rows[i], fenced[i] = withoutIdentity(q), withoutIdentity(step.Request)
		}
		return nil
	})
	if !reflect.DeepEqual(rows[0], rows[1]) || !reflect.DeepEqual(rows, fenced) {
		t.Errorf("the rows are\n%+v\n%+v\n%+v", rows[0], rows[1], fenced)
	}
	secondIsRefused(t, s)
	update(t, s, func(tx *store.Tx) error {
		q, err := tx.Request("at once")
		if err != nil {
			return err
		}
		if _, _, err := enqueue(tx, "b", "next", loquat.BusyQueue, store.AtTheEnd); err != nil {
			return err
		}
		if step, err := tx.FenceStep(q); err != nil || !step.Queued {
			t.Errorf("the step before a queued request is %+v, %v", step, err)
		}
		if err := tx.EndRequest(&q, loquat.StatusCompleted, ""); err != nil {
			return err
		}
		q.Owner = "me"
		if _, err := tx.FenceStep(q); !errors.Is(err, store.ErrFenced) {
			t.Errorf("a step after the end: %v", err)
		}
		return nil
	})
}

// secondIsRefused starts a request on the session b, where one runs.
func secondIsRefused(t *testing.T, s *store.Store) {
	err := s.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tx.Head("b")
		if err != nil {
			return err
		}
		return tx.AddRunning(&h, &store.Request{Request: loquat.Request{RequestID: "second"}}, "me")
	})
	if err == nil {
		t.Error("a second request runs on one session")
	}
}

// startBoth starts a queued request on the session a and one at once on b.
func startBoth(t *testing.T, s *store.Store) {
	update(t, s, func(tx *store.Tx) error {
		_, _, err := startQueued(tx, "a", "queued")
		return err
	})
	update(t, s, func(tx *store.Tx) error {
		h, busy, err := tx.HeadAndBusy("b")
		if err != nil {
			return err
		}
		if busy {
			t.Error("an idle session is busy")
		}
		if _, busy, err := tx.FirstUnended(h); busy || err != nil {
			t.Errorf("an idle session has an unended request: %v, %v", busy, err)
		}
		q := store.Request{Request: loquat.Request{RequestID: "at once"}, Send: []byte(`{}`), BodyHash: [32]byte{1, 2, 3}, Answer: []byte(`{"hello":"you"}`)}
		if err := tx.AddRunning(&h, &q, "me"); err != nil {
			return err
		}
		id, err := tx.Publish(loquat.Event{Type: loquat.RequestStarted}, &h, &q)
		if id != q.ClosedUpTo {
			t.Errorf("request_started is %s, and the step is closed up to %s", id, q.ClosedUpTo)
		}
		return err
	})
}

// withoutIdentity returns a request without what always differs between two.
func withoutIdentity(q store.Request) store.Request {
	q.RequestID, q.SessionID, q.RID, q.SID, q.ClosedUpTo, q.StartedAt, q.OnBusy = "", "", 0, 0, 0, nil, ""
	return q
}

func isBusy(t *testing.T, r *store.Reader, h store.Head) bool {
	t.Helper()
	_, busy, err := r.HeadAndBusy(h.SessionID)
	if err != nil {
		t.Error(err)
	}
	return busy
}

func queue(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 0)
	create(t, s, "b", 0)
	update(t, s, func(tx *store.Tx) error {
		for _, step := range []struct {
			session, id, onBusy string
			at                  store.QueuePlace
		}{
			{"a", "run", "", store.AtTheEnd},
			{"a", "fourth", loquat.BusyQueue, store.AtTheEnd},
			{"a", "fifth", loquat.BusyQueue, store.AtTheEnd},
			{"a", "second", loquat.BusySteer, store.BehindSteers},
			{"a", "first", loquat.BusyInterrupt, store.AtTheFront},
			{"a", "third", loquat.BusySteer, store.BehindSteers},
			{"b", "only", loquat.BusySteer, store.BehindSteers},
			{"b", "last", loquat.BusySteer, store.BehindSteers},
		} {
			_, q, err := enqueue(tx, step.session, step.id, step.onBusy, step.at)
			if err != nil {
				return err
			}
			if step.id == "run" {
				if err := tx.StartRequest(&q, "me"); err != nil {
					return err
				}
			}
		}
		return nil
	})
	view(t, s, func(r *store.Reader) error { return readQueue(t, r) })
	update(t, s, func(tx *store.Tx) error { return changeQueue(t, tx) })
	err := s.Update(t.Context(), func(tx *store.Tx) error {
		q, err := tx.Request("second")
		if err != nil {
			return err
		}
		return tx.StartRequest(&q, "me")
	})
	if err == nil {
		t.Error("a second request runs on one session")
	}
}

func requestIDs(queue []store.Request) string {
	var out []string
	for _, q := range queue {
		out = append(out, q.RequestID)
	}
	return strings.Join(out, " ")
}

// readQueue reads a queue in each way.
func readQueue(t *testing.T, r *store.Reader) error {
	h, err := r.Head("a")
	if err != nil {
		return err
	}
	unended, err := r.Unended(&h)
	if got := requestIDs(unended); err != nil || got != "run first second third fourth fifth" {
		t.Errorf("unended in the order %s, %v", got, err)
	}
	queued, err := r.Queued(h)
	if got := requestIDs(queued); err != nil || got != "first second third fourth fifth" {
		t.Errorf("queued in the order %s, %v", got, err)
	}
	steers, err := r.Steers(h)
	if got := requestIDs(steers); err != nil || got != "second third" || steers[0].OnBusy != loquat.BusySteer {
		t.Errorf("steers in the order %s, %v", got, err)
	}
	if n, err := r.CountQueued(h); n != 5 || err != nil || !isBusy(t, r, h) {
		t.Errorf("%d queued, %v", n, err)
	}
	if q, ok, err := r.FirstUnended(h); !ok || err != nil || q.RequestID != "run" {
		t.Errorf("first unended is %q, %v, %v", q.RequestID, ok, err)
	}
	if q, ok, err := r.NextQueued(h); !ok || err != nil || q.RequestID != "first" {
		t.Errorf("next is %q, %v, %v", q.RequestID, ok, err)
	}
	if all, err := r.Unended(nil); len(all) != 8 || err != nil {
		t.Errorf("%d unended in all, %v", len(all), err)
	}
	return nil
}

// changeQueue changes a queue in each way.
func changeQueue(t *testing.T, tx *store.Tx) error {
	h, err := tx.Head("a")
	if err != nil {
		return err
	}
	queued, err := tx.Queued(h)
	if err != nil {
		return err
	}
	slices.Reverse(queued)
	if err := tx.OrderQueue(queued); err != nil {
		return err
	}
	fourth := queued[1]
	fourth.OnBusy, fourth.Send = loquat.BusySteer, []byte(`{"changed":true}`)
	if err := errors.Join(tx.ChangeQueued(&fourth), tx.MoveQueued(&h, &fourth, store.BehindSteers)); err != nil {
		return err
	}
	queued, err = tx.Queued(h)
	if got := requestIDs(queued); err != nil || got != "fourth fifth third second first" || string(queued[0].Send) != `{"changed":true}` {
		t.Errorf("reversed and changed, queued in the order %s, %v", got, err)
	}
	run, err := tx.Request("run")
	if err != nil {
		return err
	}
	if err := tx.EndSteered(&fourth, run); err != nil {
		return err
	}
	if err := tx.EndSteered(&fourth, run); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the second end of a steer: %v", err)
	}
	got, err := tx.Request("fourth")
	if err != nil || got.Status != loquat.StatusCompleted || got.SteeredInto != "run" || got.StartedAt == nil || got.EndedAt == nil {
		t.Errorf("taken in: %+v, %v", got, err)
	}
	return err
}

func deletion(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 3)
	create(t, s, "b", 1)
	var deleted loquat.EventID
	update(t, s, func(tx *store.Tx) error {
		if _, _, err := enqueue(tx, "a", "r", loquat.BusyQueue, store.AtTheEnd); err != nil {
			return err
		}
		h, err := tx.Head("a")
		if err != nil {
			return err
		}
		if err := tx.DeleteSession(&h); err != nil {
			return err
		}
		deleted = h.Checkpoint
		return nil
	})
	requireDeleted(t, s, deleted)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = start(t, open)
	requireDeleted(t, s, deleted)
	if err := s.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	requireDeleted(t, s, deleted)
}

// requireDeleted checks that nothing of the deleted session a is left but its last event.
func requireDeleted(t *testing.T, s *store.Store, deleted loquat.EventID) {
	t.Helper()
	view(t, s, func(r *store.Reader) error {
		for name, err := range map[string]error{
			"head":    second(r.Head("a")),
			"request": second(r.Request("r")),
		} {
			if loquat.CodeOf(err) != loquat.CodeNotFound {
				t.Errorf("%s of a deleted session: %v", name, err)
			}
		}
		if id, err := r.Deletion("a"); id != deleted || err != nil {
			t.Errorf("deletion at %s, %v; want %s", id, err, deleted)
		}
		if id, err := r.Deletion("b"); id != 0 || err != nil {
			t.Errorf("deletion of b at %s, %v", id, err)
		}
		if _, err := r.Deletion("c"); loquat.CodeOf(err) != loquat.CodeNotFound {
			t.Errorf("deletion of nobody: %v", err)
		}
		for _, id := range []string{"a", "b"} {
			if taken, err := r.Taken(id); !taken || err != nil {
				t.Errorf("%s is free: %v", id, err)
			}
		}
		if heads, _, err := r.Heads(store.SessionFilter{}, store.Place{}, 10); len(heads) != 1 || err != nil {
			t.Errorf("lists %d sessions, %v", len(heads), err)
		}
		return nil
	})
	for _, f := range []store.Filter{{}, {SessionID: "a"}} {
		for _, r := range events(t, s, 0, f, 100) {
			if r.SessionID == "a" && r.Type != loquat.SessionDeleted {
				t.Errorf("%+v still shows %s", f, r.Type)
			}
		}
	}
	if got := events(t, s, 0, store.Filter{SessionID: "a"}, 100); len(got) != 1 || got[0].ID != deleted {
		t.Errorf("of the deleted session: %v", got)
	}
}

func second[T any](_ T, err error) error { return err }

func replays(t *testing.T, open Open) {
	s := start(t, open)
	want := store.Replay{BodyHash: [32]byte{9}, Result: []byte(`{"a":1}`)}
	update(t, s, func(tx *store.Tx) error { return tx.StoreReplay("k", "POST", "/x", want) })
	update(t, s, func(tx *store.Tx) error {
		got, ok, err := tx.Replay("k", "POST", "/x", tx.Now)
		if err != nil || !ok || got.BodyHash != want.BodyHash || string(got.Result) != string(want.Result) {
			t.Errorf("got %+v, %v, %v", got, ok, err)
		}
		if _, ok, err := tx.Replay("k", "POST", "/y", tx.Now); ok || err != nil {
			t.Errorf("the same key on another path: %v, %v", ok, err)
		}
		tx.Now = tx.Now.Add(store.ReplayAge + 1e9)
		if _, ok, err := tx.Replay("k", "POST", "/x", tx.Now); ok || err != nil {
			t.Errorf("after its age: %v, %v", ok, err)
		}
		return nil
	})
}

func closing(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 0)
	done := make(chan error, 50)
	for range cap(done) {
		go func() {
			done <- s.Update(context.Background(), func(tx *store.Tx) error { _, err := say(tx, "a", "x"); return err })
		}()
	}
	landed := 0
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range cap(done) {
		switch err := <-done; {
		case err == nil:
			landed++
		case loquat.CodeOf(err) != loquat.CodeUnavailable:
			t.Errorf("an update during the closing: %v", err)
		}
	}
	s = start(t, open)
	if got := len(texts(t, events(t, s, 0, store.Filter{SessionID: "a"}, 100))); got != landed {
		t.Errorf("%d updates were acknowledged, %d are there", landed, got)
	}
}

// cleanup checks that the increments of ended requests are removed, and only those.
func cleanup(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 0)
	update(t, s, func(tx *store.Tx) error {
		for _, id := range []string{"ended", "runs"} {
			h, q, err := enqueue(tx, "a", id, loquat.BusyQueue, store.AtTheEnd)
			if err != nil {
				return err
			}
			if err := tx.StartRequest(&q, "me"); err != nil {
				return err
			}
			for range 700 { // more than one transaction removes
				if _, err := tx.Publish(partial(id), &h, &q); err != nil {
					return err
				}
			}
			if id == "runs" {
				break
			}
			if _, err := tx.Publish(loquat.Event{Type: loquat.RequestCompleted}, &h, &q); err != nil {
				return err
			}
			if err := tx.EndRequest(&q, loquat.StatusCompleted, ""); err != nil {
				return err
			}
		}
		return nil
	})
	if err := s.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = start(t, open)
	for request, want := range map[string]int{"ended": 1, "runs": 700} {
		if got := events(t, s, 0, store.Filter{RequestID: request}, 5000); len(got) != want {
			t.Errorf("%s: %d events left, want %d", request, len(got), want)
		}
	}
	view(t, s, func(r *store.Reader) error {
		for _, f := range []store.Filter{{}, {SessionID: "a"}, {RequestID: "ended"}} {
			if gone, err := r.NewestRemoved(f); gone != 0 || err != nil {
				t.Errorf("%+v: removed up to %s, %v: cleanup must not make a cursor too old", f, gone, err)
			}
		}
		return nil
	})
}

// retention checks that old events are removed, except those above a session's cursor and
// those of a running request. The retention of the test is one nanosecond.
func retention(t *testing.T, open Open) {
	s, err := store.Open(t.Context(), open(t), store.Options{Retention: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Cleanup(t.Context()); err != nil {
		t.Errorf("cleanup of an empty store: %v", err)
	}
	create(t, s, "a", 1)
	var started, old loquat.EventID
	update(t, s, func(tx *store.Tx) (err error) {
		h, q, err := enqueue(tx, "a", "r", loquat.BusyQueue, store.AtTheEnd)
		if err != nil {
			return err
		}
		if old, err = tx.Publish(loquat.Event{Type: loquat.MessageAppended}, &h, nil); err != nil {
			return err
		}
		if err := tx.StartRequest(&q, "me"); err != nil {
			return err
		}
		if started, err = tx.Publish(loquat.Event{Type: loquat.RequestStarted}, &h, &q); err != nil {
			return err
		}
		if _, err := tx.ModifyMessage(&h, 0, "", "new"); err != nil {
			return err
		}
		return tx.Checkpoint(&h, nil, false)
	})
	var above loquat.EventID // the cursor
	update(t, s, func(tx *store.Tx) (err error) { above, err = say(tx, "a", "above"); return err })
	time.Sleep(5 * time.Millisecond)
	if err := s.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkpoint := above - 1
	if got := events(t, s, checkpoint, store.Filter{SessionID: "a"}, 10); len(got) != 1 || got[0].ID != above {
		t.Errorf("above the cursor: %v", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = store.Open(t.Context(), open(t), store.Options{Retention: 1}); err != nil {
		t.Fatal(err)
	}
	var left []loquat.EventID
	for _, r := range events(t, s, 0, store.Filter{}, 10) {
		left = append(left, r.ID)
	}
	if !slices.Equal(left, []loquat.EventID{started, above}) {
		t.Errorf("left are %v, want %v", left, []loquat.EventID{started, above})
	}
	requireAged(t, s, checkpoint)
	if gone, settled := s.NewestRemovedOverall(); gone != checkpoint || !settled || old >= checkpoint {
		t.Errorf("newest removed overall is %s, settled %v, want %s", gone, settled, checkpoint)
	}
}

// requireAged checks what readers see of session a after its events up to checkpoint were removed.
func requireAged(t *testing.T, s *store.Store, checkpoint loquat.EventID) {
	t.Helper()
	view(t, s, func(r *store.Reader) error {
		for f, want := range map[store.Filter]loquat.EventID{{}: checkpoint, {SessionID: "a"}: checkpoint, {RequestID: "r"}: 0, {SessionID: "b"}: 0} {
			if gone, err := r.NewestRemoved(f); gone != want || err != nil {
				t.Errorf("%+v: removed up to %s, %v; want %s", f, gone, err, want)
			}
		}
		h, err := r.Head("a")
		if err != nil {
			return err
		}
		now, err := r.History(h, h.Rev, false)
		if err != nil || len(now.Versions) != 1 || now.Versions[0].Message.Content != "new" || now.Metadata.String("name") != "a" {
			t.Errorf("the session after the cleanup: %+v, %v", now, err)
		}
		if rev, err := r.RevisionAt(h, h.Cursor); err != nil || rev != h.Rev {
			t.Errorf("the revision at the cursor is %d, %v: it can be paged as long as the session lives", rev, err)
		}
		before, err := r.Messages(h, h.Rev-1, 0, -1)
		if err != nil || len(before) != 0 {
			t.Errorf("the old version is still there: %v, %v", before, err)
		}
		return nil
	})
}

// requestEvents returns what a request published above since.
func requestEvents(tx *store.Tx, q store.Request, since loquat.EventID) (out []loquat.Record, err error) {
	err = tx.EachRequestEvent(q, since, true, func(rec loquat.Record) error {
		out = append(out, rec)
		return nil
	})
	return out, err
}

// Orphans are the running requests of other owners, and the first queued request of each
// session in which nothing runs.
func orphans(t *testing.T, open Open) {
	s := start(t, open)
	for _, id := range []string{"mine", "foreign", "queued", "removed", "idle"} {
		create(t, s, id, 0)
	}
	add := func(session, id, owner string) {
		t.Helper()
		update(t, s, func(tx *store.Tx) error {
			h, err := tx.Head(session)
			if err != nil {
				return err
			}
			q := store.Request{Request: loquat.Request{RequestID: id}, Send: []byte("{}"), Answer: []byte("{}")}
			if owner == "" {
				return tx.EnqueueRequest(&h, &q, store.AtTheEnd)
			}
			if err := tx.AddRunning(&h, &q, owner); err != nil {
				return err
			}
			_, err = tx.Publish(loquat.Event{Type: loquat.RequestStarted}, &h, &q)
			return err
		})
	}
	add("mine", "runs here", s.Owner())
	add("mine", "waits for it", "")
	add("foreign", "runs elsewhere", "another")
	add("foreign", "waits for that", "")
	add("queued", "first", "")
	add("queued", "second", "")
	add("removed", "of a deleted session", "another")
	update(t, s, func(tx *store.Tx) error {
		h, err := tx.Head("removed")
		if err == nil {
			err = tx.DeleteSession(&h)
		}
		return err
	})
	view(t, s, func(r *store.Reader) error {
		found, err := r.Orphans()
		var ids []string
		for _, q := range found {
			ids = append(ids, q.RequestID)
		}
		if want := []string{"runs elsewhere", "first"}; !slices.Equal(ids, want) {
			t.Errorf("orphans are %q, want %q", ids, want)
		}
		return err
	})
}

// The sessions to discard are those of owners that have ended, unless they are kept or deleted since.
func discarded(t *testing.T, open Open) {
	s := start(t, open)
	for _, id := range []string{"mine", "foreign", "kept", "removed", "plain"} {
		create(t, s, id, 0)
	}
	change := func(session string, fn func(*store.Tx, *store.Head) error) {
		t.Helper()
		update(t, s, func(tx *store.Tx) error {
			h, err := tx.Head(session)
			if err != nil {
				return err
			}
			return fn(tx, &h)
		})
	}
	for session, owner := range map[string]string{"mine": s.Owner(), "foreign": "another", "kept": "another", "removed": "another"} {
		change(session, func(tx *store.Tx, h *store.Head) error { return tx.DiscardWith(*h, owner) })
	}
	change("kept", func(tx *store.Tx, h *store.Head) error { return tx.DiscardWith(*h, "") })
	change("removed", (*store.Tx).DeleteSession)
	view(t, s, func(r *store.Reader) error {
		ids, err := r.Discarded()
		if want := []string{"foreign"}; !slices.Equal(ids, want) {
			t.Errorf("the sessions to discard are %q, want %q", ids, want)
		}
		return err
	})
}

// A store whose log no other node writes is the only node, and leads.
func onlyNode(t *testing.T, open Open) {
	s, err := store.Open(t.Context(), open(t), store.Options{Version: Version})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	nodes, err := s.Nodes(t.Context())
	if err != nil || len(nodes) != 1 {
		t.Fatalf("nodes are %v, %v", nodes, err)
	}
	n := nodes[0]
	if !n.Self || !n.Leads || !s.Leads() || n.Version != Version || n.NodeID != s.Node().NodeID || time.Since(n.SeenAt) > time.Minute || time.Since(n.StartedAt) > time.Minute {
		t.Errorf("the only node is %+v", n)
	}
	if s.Owner() == "" {
		t.Error("the node has no name as an owner")
	}
}
