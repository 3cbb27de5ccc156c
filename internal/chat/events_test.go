package chat_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/feed"
	"loquat/internal/plugin"
)

func (r *rig) events(q feed.Query) (feed.Window, error) {
	return r.Events(r.t.Context(), q)
}

// A follower begins with what the snapshot of a session does not hold, and a follower of a
// request begins with its first event.
func TestWhereFollowersBeginAfterARequest(t *testing.T) {
	r := newRig(t)
	s := r.create(loquat.NewSession{Messages: []loquat.NewMessage{{Role: "user", Content: "old"}}})
	q := r.send(s.SessionID, loquat.Send{Content: text("hi")})
	r.ended(q.RequestID)
	last := r.snapshot(s.SessionID)
	w, err := r.events(feed.Query{SessionID: s.SessionID})
	if err != nil || len(w.Events) != 1 || w.Events[0].Type != loquat.RequestCompleted || w.Events[0].ID <= last.CursorEventID {
		t.Errorf("from the cursor: %+v, %v", w.Events, err)
	}
	w, err = r.events(feed.Query{RequestID: q.RequestID})
	if err != nil || len(w.Events) == 0 || w.Events[0].Type != loquat.RequestStarted {
		t.Errorf("of a request: %+v, %v", w.Events, err)
	}
}

func TestDeletedSession(t *testing.T) {
	r := newRig(t)
	r.provider.then(phase{chunks: words("x"), hang: true})
	s := r.create(loquat.NewSession{SessionID: "mine"})
	q := r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)})
	waiting := make(chan error)
	go func() { // a follower of the request learns of the deletion
		since := r.store.Last()
		for {
			w, err := r.events(feed.Query{RequestID: q.RequestID, Since: &since, Wait: 20 * time.Second})
			if err != nil {
				waiting <- err
				return
			}
			since = w.Cursor
		}
	}()
	if err := r.DeleteSession(t.Context(), chat.Call{}, s.SessionID); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; loquat.CodeOf(err) != loquat.CodeNotFound {
		t.Errorf("a follower of a request of a deleted session: %v", err)
	}
	w, err := r.events(feed.Query{SessionID: s.SessionID, Since: &s.CursorEventID})
	if err != nil || len(w.Events) != 1 || w.Events[0].Type != loquat.SessionDeleted {
		t.Fatalf("after the deletion: %+v, %v", w.Events, err)
	}
	for name, err := range map[string]error{
		"poll":    second(r.events(feed.Query{SessionID: s.SessionID, Since: &w.Cursor})),
		"load":    second(r.Session(t.Context(), s.SessionID)),
		"request": second(r.Requests.Request(t.Context(), q.RequestID)),
		"delete":  r.DeleteSession(t.Context(), chat.Call{}, s.SessionID),
	} {
		if loquat.CodeOf(err) != loquat.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.CreateSession(t.Context(), chat.Call{}, loquat.NewSession{SessionID: "mine"}); loquat.CodeOf(err) != loquat.CodeConflict {
		t.Errorf("the id of a deleted session: %v", err)
	}
	r.waitFor("the worker", func() bool { return r.Requests.Running() == 0 })
}

func second[T any](_ T, err error) error { return err }

// What clients make of the log, however it is cut into windows, is what is stored.
func TestFoldOfEveryFollower(t *testing.T) {
	r := newRig(t, tool{"add", func(_ context.Context, call plugin.ToolCall) (plugin.ToolResult, error) {
		call.Progress("…", nil, nil)
		return plugin.ToolResult{Content: "3"}, nil
	}})
	rapid.Check(t, func(rt *rapid.T) {
		s := r.create(loquat.NewSession{})
		start := loquat.NewFold(s)
		steps := rapid.IntRange(1, 6).Draw(rt, "steps")
		for range steps {
			r.randomStep(rt, s.SessionID)
		}
		want := r.snapshot(s.SessionID)
		for follower := range 3 {
			fold, at := start, s.CursorEventID
			if follower > 0 {
				fold = loquat.NewFold(s)
			}
			for {
				limit := rapid.IntRange(1, 9).Draw(rt, "limit")
				w, err := r.events(feed.Query{SessionID: s.SessionID, Since: &at, Limit: limit, OmitSession: true})
				if err != nil {
					rt.Fatal(err)
				}
				if len(w.Events) == 0 {
					break
				}
				for _, rec := range w.Events {
					e, err := rec.Decode()
					if err != nil {
						rt.Fatal(err)
					}
					fold.Apply(e)
				}
				at = w.Cursor
			}
			if got := transcript(fold.Messages()); got != transcript(want.Messages) {
				rt.Fatalf("folded %s\nstored %s", got, transcript(want.Messages))
			}
			if fold.Draft() != nil {
				rt.Fatalf("a draft is left: %+v", fold.Draft())
			}
		}
		// A client that loads now and polls from its cursor gets no effect twice.
		fold := loquat.NewFold(want)
		w, err := r.events(feed.Query{SessionID: s.SessionID})
		if err != nil {
			rt.Fatal(err)
		}
		for _, rec := range w.Events {
			switch rec.Type {
			case loquat.MessageAppended, loquat.Final, loquat.ToolResults, loquat.MessageModified, loquat.MessagesDeleted:
				rt.Fatalf("%s is behind the cursor of the snapshot that holds it", rec.Type)
			}
		}
		if got := transcript(fold.Messages()); got != transcript(want.Messages) {
			rt.Fatalf("snapshot folded to %s", got)
		}
	})
}

// randomStep changes a session in one of the ways that clients can, and waits until
// nothing runs.
func (r *rig) randomStep(rt *rapid.T, session string) {
	n := len(r.snapshot(session).Messages)
	ctx := r.t.Context()
	var err error
	switch kind := rapid.IntRange(0, 5).Draw(rt, "step"); {
	case kind == 0:
		_, err = r.AppendMessage(ctx, chat.Call{}, session, loquat.NewMessage{Role: "user", Content: "appended"})
	case kind == 1 && n > 0:
		_, err = r.ModifyMessage(ctx, chat.Call{}, session, rapid.IntRange(0, n-1).Draw(rt, "index"), "modified")
	case kind == 2 && n > 0:
		_, err = r.DeleteMessages(ctx, chat.Call{}, session, []int{rapid.IntRange(0, n-1).Draw(rt, "index")})
	default:
		p := loquat.Send{Content: text("sent"), Stream: new(rapid.Bool().Draw(rt, "stream")), StreamTools: rapid.Bool().Draw(rt, "stream tools")}
		if n > 0 && rapid.IntRange(0, 3).Draw(rt, "edit") == 0 {
			from := rapid.IntRange(0, n-1).Draw(rt, "from")
			p.DeleteFrom = &from
		}
		r.provider.mu.Lock()
		r.provider.phases = randomPhases(rt)
		r.provider.mu.Unlock()
		q := r.send(session, p)
		if rapid.IntRange(0, 3).Draw(rt, "cancel") == 0 {
			_, err = r.Requests.Cancel(ctx, chat.Call{}, q.RequestID)
		}
		r.ended(q.RequestID)
	}
	if err != nil {
		rt.Fatal(err)
	}
}

func randomPhases(rt *rapid.T) []phase {
	var out []phase
	for range rapid.IntRange(0, 2).Draw(rt, "rounds") {
		out = append(out, phase{chunks: randomChunks(rt), reply: loquat.Reply{Content: "calling", ToolCalls: calls("add", "nowhere")}})
	}
	last := phase{chunks: randomChunks(rt), reply: loquat.Reply{Content: "done"}}
	if rapid.IntRange(0, 2).Draw(rt, "fails") == 0 {
		last.err = loquat.Errorf(loquat.CodeBackendError, "cut")
	}
	return append(out, last)
}

func randomChunks(rt *rapid.T) []loquat.Chunk {
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) loquat.Chunk {
		return loquat.Chunk{
			Text:      rapid.SampledFrom([]string{"", "a", "b "}).Draw(rt, "text"),
			Reasoning: rapid.SampledFrom([]string{"", "", "hm"}).Draw(rt, "reasoning"),
			Restarted: rapid.IntRange(0, 6).Draw(rt, "restarted") == 0,
		}
	}), 0, 6).Draw(rt, "chunks")
}
