package audit

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// written makes the events of a request from their types, with a phase or a mark after
// a colon: start:stream, start:steered, final:tools, final:cut.
func written(story string) (events []loquat.Event) {
	streams := strings.HasPrefix(story, "request_started:stream")
	for i, word := range strings.Fields(story) {
		kind, mark, _ := strings.Cut(word, ":")
		e := loquat.Event{EventID: loquat.EventID(i + 1), Type: loquat.EventType(kind), SessionID: "s", RequestID: "r", Phase: mark}
		call := loquat.ToolCall{ID: "c", Name: "clock"}
		switch e.Type {
		case loquat.RequestStarted:
			e.Stream, e.Phase = &streams, ""
			if mark == "steered" {
				e.SteeredInto = "another"
			}
		case loquat.Final:
			m := loquat.Message{ID: fmt.Sprint(i), Role: loquat.RoleAssistant}
			switch mark {
			case "tools":
				m.Metadata = m.Metadata.Set(loquat.MetaToolCalls, []loquat.ToolCall{call})
			case "cut":
				m.Metadata = m.Metadata.Set(loquat.MetaIncomplete, "interrupted")
			}
			e.Messages, e.Phase = []loquat.Message{m}, ""
		case loquat.ToolCalls:
			e.ToolCalls = []loquat.ToolCall{call}
		case loquat.ToolPartial:
			e.ToolCallID = call.ID
		case loquat.ToolResults:
			if mark != "none" {
				e.Messages = []loquat.Message{{ID: fmt.Sprint(i), Role: loquat.RoleTool, Metadata: loquat.Object{}.Set(loquat.MetaToolCallID, call.ID)}}
			}
		}
		events = append(events, e)
	}
	return events
}

// checkRequestOrder accepts valid orders of events and rejects invalid ones.
func TestRequestOrder(t *testing.T) {
	const (
		begin = "request_started:stream assistant_message:start partial assistant_message:end "
		tools = begin + "final:tools checkpoint tool_calls "
	)
	for story, right := range map[string]bool{
		"request_started final checkpoint request_completed":                                                               true,
		begin + "final checkpoint request_completed":                                                                       true,
		begin + "request_cancelled request_completed":                                                                      true,
		begin + "final:cut checkpoint error request_completed":                                                             true,
		tools + "tool_partial:start tool_partial:end tool_results checkpoint request_cancelled request_completed":          true,
		tools + "tool_results checkpoint assistant_message:start assistant_message:end final checkpoint request_completed": true,
		"request_started request_cancelled request_completed":                                                              true,
		"request_started retry_scheduled error request_completed":                                                          true,
		"request_started:steered request_completed":                                                                        true,

		"request_started":                                                                                  false,
		"final checkpoint request_completed":                                                               false,
		"request_started request_completed":                                                                false,
		"request_started:steered final checkpoint request_completed":                                       false,
		"request_started request_started final checkpoint request_completed":                               false,
		"request_started assistant_message:start partial":                                                  false,
		begin + "partial final checkpoint request_completed":                                               false,
		begin + "assistant_message:end final checkpoint request_completed":                                 false,
		begin + "request_completed":                                                                        false,
		begin + "final request_completed":                                                                  false,
		begin + "final checkpoint error request_completed":                                                 false,
		begin + "final:cut checkpoint request_completed":                                                   false,
		begin + "final checkpoint request_completed request_completed":                                     false,
		begin + "error request_cancelled request_completed":                                                false,
		begin + "final checkpoint tool_calls tool_results checkpoint":                                      false,
		"request_started:stream final checkpoint request_completed":                                        false,
		"request_started assistant_message:start assistant_message:end final checkpoint request_completed": false,
		tools + "tool_results:none checkpoint request_cancelled request_completed":                         false,
		tools + "request_cancelled request_completed":                                                      false,
		tools + "tool_partial:end tool_partial:stream tool_results checkpoint error request_completed":     false,
		strings.TrimSuffix(tools, "tool_calls ") + "request_completed":                                     false,
	} {
		if err := checkRequestOrder(written(story), false); (err == nil) != right {
			t.Errorf("%s: %v", story, err)
		}
	}
	if err := checkRequestOrder(written(tools+"request_cancelled request_completed"), true); err != nil {
		t.Errorf("rolled back while tools run: %v", err)
	}
}

func TestWitness(t *testing.T) {
	partial := func(id loquat.EventID, text string) loquat.Event {
		return loquat.Event{EventID: id, Type: loquat.Partial, SessionID: "s", RequestID: "r", Message: &loquat.Delta{Content: text}}
	}
	w := newWitness()
	for _, e := range []loquat.Event{{EventID: 1, Type: loquat.Checkpoint, SessionID: "s"}, partial(2, "b"), partial(2, "ab"), {EventID: 1, Type: loquat.Checkpoint, SessionID: "s"}} {
		if err := w.see(e); err != nil {
			t.Error(err)
		}
	}
	for _, e := range []loquat.Event{{EventID: 1, Type: loquat.Checkpoint, SessionID: "other"}, partial(2, "c"), partial(1, "b")} {
		if w.see(e) == nil {
			t.Errorf("event %s has two meanings", e.EventID)
		}
	}
	if lost := w.missing(NewTruth(nil)); len(lost) != 1 {
		t.Errorf("of a checkpoint and a partial, %v are missed", lost)
	}
}

func TestRetell(t *testing.T) {
	text, index := "new", 1
	message := func(id string) *loquat.Delta { return &loquat.Delta{ID: id, Role: loquat.RoleUser, Content: id} }
	events := []loquat.Event{
		{EventID: 1, Type: loquat.MessageAppended, Message: message("a")},
		{EventID: 2, Type: loquat.MessageAppended, Message: message("b")},
		{EventID: 3, Type: loquat.MessageModified, Index: &index, Content: &text},
		{EventID: 4, Type: loquat.MessagesDeleted, Indices: []int{0}},
		{EventID: 5, Type: loquat.MessageAppended, Message: message("b")},
		{EventID: 6, Type: loquat.MessagesDeleted, Indices: []int{5}},
	}
	for upTo, want := range []string{1: "a", 2: "a b", 3: "a new", 4: "new", 5: "new b again", 6: "new b again"} {
		if upTo == 0 {
			continue
		}
		replayedSession := replay(events, loquat.EventID(upTo))
		var got []string
		for _, m := range replayedSession.messages {
			got = append(got, m.Content)
		}
		if replayedSession.err != nil && strings.Contains(replayedSession.err.Error(), "again") {
			got = append(got, "again")
		}
		if strings.Join(got, " ") != want {
			t.Errorf("up to %d: %q, want %q", upTo, got, want)
		}
	}
	if replayedSession := replay(events, 0); replayedSession.err == nil || !strings.Contains(replayedSession.err.Error(), "message 5 of 2") {
		t.Errorf("a deletion beyond the end: %v", replayedSession.err)
	}
}

// An alternative brings back messages that were deleted, in one change. A message that is there comes again
// only by a fault.
func TestSwitch(t *testing.T) {
	message := func(id string) *loquat.Delta { return &loquat.Delta{ID: id, Role: loquat.RoleUser, Content: id} }
	events := []loquat.Event{
		{EventID: 1, Type: loquat.MessageAppended, Message: message("a")},
		{EventID: 2, Type: loquat.Checkpoint},
		{EventID: 3, Type: loquat.MessagesDeleted, Indices: []int{0}},
		{EventID: 4, Type: loquat.MessageAppended, Message: message("b")},
		{EventID: 5, Type: loquat.Checkpoint},
		{EventID: 6, Type: loquat.MessagesDeleted, Indices: []int{0}},
		{EventID: 7, Type: loquat.MessageAppended, Message: message("a")},
		{EventID: 8, Type: loquat.MessageAppended, Message: message("c")},
		{EventID: 9, Type: loquat.Checkpoint},
	}
	if got := replay(events, 0); got.err != nil || len(got.messages) != 2 {
		t.Errorf("%v", got)
	}
	if err := checkSessionOrder(events); err != nil {
		t.Error(err)
	}
	if err := checkSessionOrder(events[:8]); err == nil {
		t.Error("a change without its checkpoint is accepted")
	}
	again := append(events, loquat.Event{EventID: 10, Type: loquat.MessageAppended, Message: message("c")}, loquat.Event{EventID: 11, Type: loquat.Checkpoint})
	if got := replay(again, 0); got.err == nil {
		t.Error("a message that is there is added again, and nothing notices it")
	}
}

// A change that is there twice is reported. What an alternative brings back is none, also a reply, which many
// others may equal.
func TestDoneTwice(t *testing.T) {
	text := func(s string) *string { return &s }
	in := func(session string, e loquat.Event) loquat.Event { e.SessionID = session; return e }
	reply := loquat.Message{ID: "reply", Role: loquat.RoleAssistant, Content: "one two"}
	back := func(id string) loquat.Event {
		return loquat.Event{Type: loquat.MessageAppended, Message: &loquat.Delta{ID: id, Content: "one two"}, Content: text("one two"),
			Session: &loquat.Session{Messages: []loquat.Message{{ID: id, Content: "one two"}}}}
	}
	log := []loquat.Event{
		{Type: loquat.Final, Messages: []loquat.Message{reply}}, {Type: loquat.Final, Messages: []loquat.Message{{ID: "other", Content: "one two"}}},
		back("reply"), back("other"), back("reply"),
		{Type: loquat.MessageModified, Content: text("changed")},
		{Type: loquat.SessionCreated, SessionID: "deleted", SourceSessionID: "s"}, in("deleted", back("copy")), in("deleted", back("copy of other")),
		{Type: loquat.SessionCreated, SessionID: "fork", SourceSessionID: "s"}, in("fork", back("in fork")), in("fork", back("other in fork")),
	}
	truth := NewTruth(log)
	truth.bySession["fork"][0].Session = &loquat.Session{Messages: []loquat.Message{{ID: "in fork"}, {ID: "other in fork"}}} // as read does
	if faults := onlyOnce(truth, ""); len(faults) > 0 {
		t.Error(faults)
	}
	log = append(log, loquat.Event{Type: loquat.MessageModified, Content: text("changed")}, back("new"), back("newer"))
	if faults := onlyOnce(NewTruth(log), ""); len(faults) != 2 { // here the beginnings of the forks were not read
		t.Errorf("%v", faults)
	}
}

// A follower that learns from a load that its session is deleted has come to the end, though it got no event of it.
func TestDeletedWhileReloading(t *testing.T) {
	w := &watcher{name: "reloader", reloads: true, query: client.Query{SessionID: "s"}, at: 1, folds: map[string]*loquat.Fold{"s": binary.EmptyFold("s")}}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	log := NewTruth([]loquat.Event{{EventID: 1, Type: loquat.SessionCreated, SessionID: "s"}, {EventID: 9, Type: loquat.SessionDeleted, SessionID: "s"}})
	if _, faults := w.compare(ended, log); len(faults) != 1 {
		t.Errorf("before the load: %v", faults)
	}
	w.end()
	if _, faults := w.compare(ended, log); len(faults) > 0 {
		t.Error(faults)
	}
}

// A follower that missed an event is reported, and so is a copy that lacks one or has another one.
func TestMissedEvents(t *testing.T) {
	log := []loquat.Event{
		{EventID: 1, Type: loquat.SessionCreated, SessionID: "s"}, {EventID: 2, Type: loquat.RequestStarted, SessionID: "s", RequestID: "r"},
		{EventID: 3, Type: loquat.Partial, SessionID: "s", RequestID: "r", Message: &loquat.Delta{Content: "x"}}, {EventID: 4, Type: loquat.Checkpoint, SessionID: "s"},
		{EventID: 5, Type: loquat.SessionCreated, SessionID: "empty"},
	}
	l := New(t.Context(), Options{Vanish: func(string, string) bool { return false }, Fault: func(err error) { t.Error(err) }})
	defer l.Stop()
	w := &watcher{name: "follower", got: map[loquat.EventID]bool{1: true, 2: true, 5: true}}
	if faults := w.lost(NewTruth(log)); len(faults) != 1 || !strings.Contains(faults[0].Error(), "0000000000000004") {
		t.Errorf("%v", faults)
	}
	for _, e := range log {
		if err := l.witness.see(e); err != nil {
			t.Fatal(err)
		}
	}
	other := log[3]
	other.AgentID = "other"
	for what, copied := range map[string]struct {
		log    []loquat.Event
		last   loquat.EventID
		faults int
	}{
		"the log": {log, 5, 0}, "its beginning": {log[:2], 2, 0}, "without an increment": {append(log[:2:2], log[3:]...), 5, 0},
		"without the session in which nothing has begun": {log[:4], 5, 0}, "without an event": {append(log[:1:1], log[2:]...), 5, 1},
		"with another event": {append(log[:3:3], other), 5, 1}, "before its session has begun": {nil, 1, 0},
	} {
		if faults := l.CompareCopy(copied.log, copied.last); len(faults) != copied.faults {
			t.Errorf("a copy %s: %v", what, faults)
		}
	}
}
