package chat_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/store"
)

// cutOff starts a request that streams, publishes an increment of its own to it, and
// returns it while it still runs.
func (r *rig) cutOff(session string, increment loquat.Delta) loquat.SendResult {
	r.t.Helper()
	gate := make(chan struct{})
	r.provider.then(phase{chunks: words("half"), gate: gate, hang: true})
	q := r.send(session, loquat.Send{Content: text("hi"), Stream: new(true)})
	tick(gate, 1)
	r.waitFor("the text", func() bool { return strings.Contains(story(r.log(session, 0)), "half") })
	r.change(q.RequestID, func(tx *store.Tx, row *store.Request) error {
		h, err := tx.Head(session)
		if err == nil {
			_, err = tx.Publish(loquat.Event{Type: loquat.Partial, Message: &increment}, &h, row)
		}
		return err
	})
	return q
}

// change changes a request behind the service's back.
func (r *rig) change(requestID string, fn func(*store.Tx, *store.Request) error) {
	r.t.Helper()
	err := r.store.Update(r.t.Context(), func(tx *store.Tx) error {
		row, err := tx.Request(requestID)
		if err != nil {
			return err
		}
		return fn(tx, &row)
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// unreadable is an increment that no decoder takes, as logs may hold it from before JSON
// of backends had a bound.
func unreadable() loquat.Delta {
	deep := json.RawMessage(strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001))
	return loquat.Delta{Role: loquat.RoleAssistant, Metadata: loquat.Object{"weird": deep}}
}

// A request whose increments cannot be read ends with an error, after a crash and at a
// cancel, and its session goes on.
func TestUnreadableIncrements(t *testing.T) {
	for name, end := range map[string]func(*rig, string){
		"after a crash": func(r *rig, _ string) { r.restart() },
		"at a cancel": func(r *rig, request string) {
			if _, err := r.Requests.Cancel(r.t.Context(), chat.Call{}, request); err != nil {
				r.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := r.create(loquat.NewSession{})
			q := r.cutOff(s.SessionID, unreadable())
			end(r, q.RequestID)
			got := r.ended(q.RequestID)
			if name == "after a crash" && (got.Status != loquat.StatusFailed || !strings.Contains(got.Error, "cannot be read and is lost")) {
				t.Errorf("it ends %s: %s", got.Status, got.Error)
			}
			if name == "at a cancel" && got.Status != loquat.StatusCancelled {
				t.Errorf("it ends %s: %s", got.Status, got.Error)
			}
			records, err := r.store.Events(t.Context(), 0, store.Filter{RequestID: q.RequestID}, store.Bounds{Events: 100, Bytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			var types []string
			for _, rec := range records {
				types = append(types, string(rec.Type))
			}
			if got := strings.Join(types, " "); !strings.Contains(got, "assistant_message partial partial assistant_message") || !strings.HasSuffix(got, "request_completed") {
				t.Errorf("events %s", got)
			}
			next := r.send(s.SessionID, loquat.Send{Content: text("next")})
			if got := r.ended(next.RequestID); got.Status != loquat.StatusCompleted {
				t.Errorf("the next request: %+v", got)
			}
			if err := r.store.Cleanup(t.Context()); err != nil { // the increment goes with the others
				t.Fatal(err)
			}
		})
	}
}

// A session whose running request cannot be read can be deleted: by a call, and by a start if it was
// not to be kept.
func TestSessionThatCannotBeRead(t *testing.T) {
	for name, end := range map[string]func(r *rig, session, request string){
		"by a call": func(r *rig, session, _ string) {
			if err := r.DeleteSession(r.t.Context(), chat.Call{}, session); err != nil {
				r.t.Error(err)
			}
		},
		"by a start": func(r *rig, _, request string) {
			r.change(request, func(tx *store.Tx, row *store.Request) error {
				h, err := tx.Head(row.SessionID)
				if err != nil {
					return err
				}
				return tx.DiscardWith(h, "a process that has ended")
			})
			r.restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := r.create(loquat.NewSession{})
			q := r.cutOff(s.SessionID, unreadable())
			end(r, s.SessionID, q.RequestID)
			if _, err := r.Session(t.Context(), s.SessionID); loquat.CodeOf(err) != loquat.CodeNotFound {
				t.Errorf("the session: %v", err)
			}
			other := r.create(loquat.NewSession{})
			next := r.send(other.SessionID, loquat.Send{Content: text("next")})
			if got := r.ended(next.RequestID); got.Status != loquat.StatusCompleted {
				t.Errorf("the next request: %+v", got)
			}
			if err := r.store.Cleanup(t.Context()); err != nil { // what cannot be read goes with the session
				t.Fatal(err)
			}
		})
	}
}

// A request that streamed much, and that two starts did not survive taking up, ends
// without its text at the third. A smaller one is taken up whatever happened.
func TestRequestThatStartsDoNotSurvive(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		owner string
		bytes int
		kept  bool
	}{
		{"", 5 << 20, true},
		{"taking up: 1", 5 << 20, true},
		{"taking up: 2", 5 << 20, false},
		{"taking up: 2", 1 << 20, true},
		{"taking up: nonsense", 5 << 20, true},
	} {
		t.Run(fmt.Sprintf("%q, %d bytes", c.owner, c.bytes), func(t *testing.T) {
			r := newRig(t)
			s := r.create(loquat.NewSession{})
			q := r.cutOff(s.SessionID, loquat.Delta{Role: loquat.RoleAssistant, Content: strings.Repeat("x", c.bytes)})
			if c.owner != "" {
				r.change(q.RequestID, func(tx *store.Tx, row *store.Request) error { return tx.SetOwner(row, c.owner) })
			}
			r.restart()
			got, messages := r.ended(q.RequestID), r.snapshot(s.SessionID).Messages
			if got.Status != loquat.StatusFailed || strings.Contains(got.Error, "max_response_bytes") == c.kept {
				t.Errorf("it ends %s: %s", got.Status, got.Error)
			}
			if kept := len(messages) == 2 && len(messages[1].Content) > c.bytes; kept != c.kept {
				t.Errorf("%d messages are kept", len(messages))
			}
			next := r.send(s.SessionID, loquat.Send{Content: text("next")})
			if got := r.ended(next.RequestID); got.Status != loquat.StatusCompleted {
				t.Errorf("the next request: %+v", got)
			}
		})
	}
}
