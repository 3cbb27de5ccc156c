package loquat

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func emptySnapshot(session string) Snapshot {
	return Snapshot{Session: Session{SessionID: session, AgentID: DefaultAgent}, CursorEventID: 100}
}

// state holds the results of all methods of a Fold.
type state struct {
	Messages []Message
	Draft    *Draft
	Agent    string
	Metadata Object
	Deleted  bool
	Cursor   EventID
}

func stateOf(f *Fold) state {
	return state{f.Messages(), f.Draft(), f.AgentID(), f.Metadata(), f.Deleted(), f.Cursor()}
}

func applyAll(t interface{ Fatal(...any) }, f *Fold, window []Record) {
	for _, rec := range window {
		e, err := rec.Decode()
		if err != nil {
			t.Fatal(err)
		}
		f.Apply(e)
	}
}

// At the end of every window, compacted windows fold to the same state as the events
// themselves, even if a window is delivered twice.
func TestFoldOfCompactedWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := drawLog(t, rapid.IntRange(1, 2).Draw(t, "sessions"))
		for _, id := range sessionsOf(log) {
			plain, compacted := NewFold(emptySnapshot(id)), NewFold(emptySnapshot(id))
			for _, window := range drawWindows(t, log) {
				applyAll(t, plain, window)
				applyAll(t, compacted, Compact(window))
				if rapid.Bool().Draw(t, "again") {
					applyAll(t, compacted, Compact(window))
				}
				if a, b := stateOf(plain), stateOf(compacted); !reflect.DeepEqual(a, b) {
					t.Fatalf("after %s:\nplain     %+v\ncompacted %+v", window[len(window)-1].ID, a, b)
				}
			}
		}
	})
}

// A client that starts from a later snapshot ends in the same state.
func TestFoldFromLaterSnapshot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := drawLog(t, 1)
		whole, early := NewFold(emptySnapshot("s0")), NewFold(emptySnapshot("s0"))
		applyAll(t, whole, log)
		for i, rec := range log {
			applyAll(t, early, log[i:i+1])
			if early.Draft() != nil || early.Deleted() || rapid.IntRange(0, 3).Draw(t, "load") > 0 {
				continue
			}
			late := NewFold(Snapshot{CursorEventID: rec.ID, Session: Session{SessionID: "s0",
				AgentID: early.AgentID(), Metadata: early.Metadata(), Messages: early.Messages()}})
			applyAll(t, late, Compact(log))
			if a, b := stateOf(whole), stateOf(late); !reflect.DeepEqual(a, b) {
				t.Fatalf("from %s:\nwhole %+v\nlate  %+v", rec.ID, a, b)
			}
		}
	})
}

func TestFold(t *testing.T) {
	message := func(id, text string) Message { return Message{ID: id, Role: RoleUser, Content: text} }
	final := func(request string, messages ...Message) Event {
		return Event{Type: Final, RequestID: request, Messages: messages}
	}
	appended := func(m Message) Event { return Event{Type: MessageAppended, Message: m.AsDelta()} }
	modified := func(i int, text string, message *Delta) Event {
		return Event{Type: MessageModified, Index: &i, Content: &text, Message: message}
	}
	for _, tc := range []struct {
		name   string
		events []Event
		want   []string // contents
		draft  *Draft
	}{
		{"messages are added", []Event{appended(message("c", "C")), final("r", message("d", "D"))}, []string{"A", "B", "C", "D"}, nil},
		{"a message with a known id is replaced", []Event{final("r", message("a", "A2")), appended(message("b", "B2"))}, []string{"A2", "B2"}, nil},
		{"content is modified", []Event{modified(1, "B2", nil)}, []string{"A", "B2"}, nil},
		{"a whole message is modified", []Event{modified(0, "S", message("s", "S").AsDelta()), final("r", message("s", "S2"))}, []string{"S2", "B"}, nil},
		{"the id of a message that got another id is unknown again",
			[]Event{modified(0, "S", message("s", "S").AsDelta()), final("r", message("a", "A2"))}, []string{"S", "B", "A2"}, nil},
		{"an index out of range", []Event{modified(2, "X", nil), modified(-1, "X", nil)}, []string{"A", "B"}, nil},
		{"deleted indices refer to the state before the deletion",
			[]Event{appended(message("c", "C")), {Type: MessagesDeleted, Indices: []int{0, 2}}, appended(message("b", "B2"))}, []string{"B2"}, nil},
		{"another session", []Event{{SessionID: "t", Type: MessagesDeleted, Indices: []int{0}}}, []string{"A", "B"}, nil},
		{"a draft grows", []Event{partialOf("r", "x", nil), partialOf("r", "y", nil)}, []string{"A", "B"}, &Draft{RequestID: "r", Content: "xy"}},
		{"a draft belongs to its request", []Event{partialOf("r", "x", nil), partialOf("q", "y", nil)}, []string{"A", "B"}, &Draft{RequestID: "q", Content: "y"}},
		{"a restart empties the draft", []Event{partialOf("r", "x", Object{}.Set("reasoning", "z")), partialOf("r", "y", Object{}.Set(MetaStreamRestarted, true))},
			[]string{"A", "B"}, &Draft{RequestID: "r", Content: "y"}},
		{"the metadata of a draft grows", []Event{partialOf("r", "", Object{}.Set("reasoning", "x")), partialOf("r", "", Object{}.Set("reasoning", "y"))},
			[]string{"A", "B"}, &Draft{RequestID: "r", Metadata: Object{}.Set("reasoning", "xy")}},
		{"both kinds of reasoning grow independently",
			[]Event{partialOf("r", "", Object{}.Set("reasoning", "x").Set("reasoning_content", "1")), partialOf("r", "", Object{}.Set("reasoning_content", "2")), partialOf("r", "", Object{}.Set("reasoning", "y"))},
			[]string{"A", "B"}, &Draft{RequestID: "r", Metadata: Object{}.Set("reasoning", "xy").Set("reasoning_content", "12")}},
		{"the end of the request clears the draft", []Event{partialOf("r", "x", nil), {Type: RequestCompleted, RequestID: "r"}}, []string{"A", "B"}, nil},
		{"the end of another request does not", []Event{partialOf("r", "x", nil), {Type: RequestCompleted, RequestID: "q"}}, []string{"A", "B"}, &Draft{RequestID: "r", Content: "x"}},
		{"tool results clear the draft", []Event{partialOf("r", "x", nil), {Type: ToolResults, RequestID: "r", Messages: []Message{message("t", "T")}}}, []string{"A", "B", "T"}, nil},
		{"a deleted session is empty", []Event{partialOf("r", "x", nil), {Type: SessionDeleted}, appended(message("c", "C"))}, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			snapshot := Snapshot{Session: Session{SessionID: "s", Messages: []Message{message("a", "A"), message("b", "B")}}}
			f := NewFold(snapshot)
			applyAll(t, f, records(t, tc.events...))
			var got []string
			for _, m := range f.Messages() {
				got = append(got, m.Content)
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("messages %q, want %q", got, tc.want)
			}
			if d := f.Draft(); !reflect.DeepEqual(d, tc.draft) {
				t.Errorf("draft %+v, want %+v", d, tc.draft)
			}
			if snapshot.Messages[0].Content != "A" || snapshot.Messages[1].Content != "B" {
				t.Error("the snapshot has changed")
			}
		})
	}
}

func TestFoldAgentAndMetadata(t *testing.T) {
	f := NewFold(Snapshot{Session: Session{SessionID: "s", AgentID: "a", Metadata: Object{}.Set("k", 1)}, CursorEventID: 5})
	f.Apply(Event{EventID: 5, SessionID: "s", Type: Checkpoint, AgentID: "old"})
	f.Apply(Event{EventID: 6, SessionID: "s", Type: Checkpoint})
	if f.AgentID() != "a" || f.Metadata().String("k") != "" || string(f.Metadata()["k"]) != "1" {
		t.Errorf("agent %q, metadata %s", f.AgentID(), f.Metadata())
	}
	f.Apply(Event{EventID: 7, SessionID: "s", Type: Checkpoint, AgentID: "b", Metadata: Object{}.Set("k", 2)})
	if f.AgentID() != "b" || string(f.Metadata()["k"]) != "2" {
		t.Errorf("agent %q, metadata %s", f.AgentID(), f.Metadata())
	}
	f.Apply(Event{EventID: 8, SessionID: "s", Type: Checkpoint, AgentID: "b"})
	if len(f.Metadata()) != 0 {
		t.Errorf("metadata %s after it became empty", f.Metadata())
	}
}

// A draft that a fold returned does not change when further events are applied.
func TestDraftIsACopy(t *testing.T) {
	f := NewFold(Snapshot{Session: Session{SessionID: "s"}})
	window := records(t, partialOf("r", "a", Object{}.Set("reasoning", "x")), partialOf("r", "b", Object{}.Set("reasoning", "y")),
		partialOf("r", "c", Object{}.Set("reasoning", "z")))
	applyAll(t, f, window[:2])
	early := f.Draft()
	applyAll(t, f, window[2:])
	if early.Content != "ab" || string(early.Metadata["reasoning"]) != `"xy"` {
		t.Errorf("the early draft is now %q, %s", early.Content, early.Metadata)
	}
}

func TestMergeIncrements(t *testing.T) {
	text := func(s string) *string { return &s }
	num := func(f float64) *float64 { return &f }
	tool := func(call, phase string, p Payload) Event {
		return Event{Type: ToolPartial, ToolCallID: call, Phase: phase, Payload: &p}
	}
	partial := func(s string) Event { return Event{Type: Partial, Message: &Delta{Role: RoleAssistant, Content: s}} }
	got := MergeIncrements([]Event{
		{Type: AssistantMessage, Phase: PhaseStart}, partial("a"), partial("b"), partial("c"),
		tool("x", PhaseStart, Payload{Part: text("")}),
		tool("x", PhaseStream, Payload{Part: text("1"), Progress: num(1), Total: num(9)}), tool("x", PhaseStream, Payload{Part: text("2"), Progress: num(2)}),
		tool("y", PhaseStream, Payload{Part: text("3")}), tool("x", PhaseStream, Payload{Part: text("4")}),
		partial("d"),
	})
	want := []Event{
		{Type: AssistantMessage, Phase: PhaseStart}, partial("abc"),
		tool("x", PhaseStart, Payload{Part: text("")}),
		tool("x", PhaseStream, Payload{Part: text("12"), Progress: num(2), Total: num(9)}),
		tool("y", PhaseStream, Payload{Part: text("3")}), tool("x", PhaseStream, Payload{Part: text("4")}),
		partial("d"),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
