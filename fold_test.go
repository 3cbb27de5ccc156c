package loquat

import (
	"reflect"
	"strconv"
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

// A Fold of the last messages has what a Fold of all has from its first message on, whatever happens
// before it.
func TestFoldOfTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := drawLog(t, 1)
		whole := NewFold(emptySnapshot("s0"))
		var tail *Fold
		for _, rec := range log {
			applyAll(t, whole, []Record{rec})
			all := whole.Messages()
			switch {
			case tail != nil:
				applyAll(t, tail, []Record{rec})
				if rapid.IntRange(0, 3).Draw(t, "trim") == 0 {
					tail.Trim(rapid.IntRange(0, 4).Draw(t, "keep"))
				}
			case whole.Draft() == nil && !whole.Deleted() && rapid.IntRange(0, 3).Draw(t, "load") == 0:
				last := all[max(0, len(all)-rapid.IntRange(0, 3).Draw(t, "last")):]
				tail = NewTailFold(Session{SessionID: "s0", AgentID: whole.AgentID(), Metadata: whole.Metadata()},
					MessagePage{CursorEventID: rec.ID, Total: len(all), Messages: last})
			default:
				continue
			}
			got, want := stateOf(tail), stateOf(whole)
			if whole.Deleted() {
				continue
			}
			if tail.First()+len(got.Messages) != len(all) {
				t.Fatalf("after %s the tail is %d messages from %d on, of %d", rec.Body, len(got.Messages), tail.First(), len(all))
			}
			want.Messages = append([]Message{}, all[tail.First():]...)
			got.Messages = append([]Message{}, got.Messages...)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("after %s:\ntail  %+v\nwhole %+v", rec.Body, got, want)
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
		{"a message that was added is replaced", []Event{appended(message("c", "C")), final("r", message("c", "C2"))}, []string{"A", "B", "C2"}, nil},
		{"messages without an id are added", []Event{final("r", message("", "C")), final("r", message("", "D"))}, []string{"A", "B", "C", "D"}, nil},
		{"events without what they change", []Event{{Type: MessageAppended}, {Type: MessageModified}, {Type: MessageModified, Index: new(int)}, {Type: Partial, RequestID: "r"}}, []string{"A", "B"}, nil},
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

// A Fold of the last messages counts those before it.
func TestTailFold(t *testing.T) {
	text := "new"
	modified := func(i int) Event { return Event{Type: MessageModified, SessionID: "s", Index: &i, Content: &text} }
	deleted := func(indices ...int) Event { return Event{Type: MessagesDeleted, SessionID: "s", Indices: indices} }
	for _, tc := range []struct {
		name  string
		apply func(f *Fold, apply func(Event))
		want  string // the index of the first message, and the contents
	}{
		{"a loaded message is modified", func(_ *Fold, apply func(Event)) { apply(modified(5)) }, "4 E new"},
		{"messages that are not loaded are modified", func(_ *Fold, apply func(Event)) { apply(modified(3)); apply(modified(6)) }, "4 E F"},
		{"messages on both sides are deleted", func(_ *Fold, apply func(Event)) { apply(deleted(0, 3, 4)) }, "2 F"},
		{"indices out of range are deleted", func(_ *Fold, apply func(Event)) { apply(deleted(-1, 6)) }, "4 E F"},
		{"some are trimmed", func(f *Fold, apply func(Event)) { f.Trim(1); apply(modified(5)); apply(deleted(4)) }, "4 new"},
		{"none is trimmed", func(f *Fold, _ func(Event)) { f.Trim(2); f.Trim(3) }, "4 E F"},
		{"a message that stays is replaced", func(f *Fold, apply func(Event)) {
			f.Trim(1)
			apply(Event{Type: Final, SessionID: "s", Messages: []Message{{ID: "f", Content: text}}})
		}, "5 new"},
	} {
		f := NewTailFold(Session{SessionID: "s"}, MessagePage{Total: 6, Messages: []Message{{ID: "e", Content: "E"}, {ID: "f", Content: "F"}}})
		tc.apply(f, func(e Event) {
			e.EventID = f.Cursor() + 1
			f.Apply(e)
		})
		got := strconv.Itoa(f.First())
		for _, m := range f.Messages() {
			got += " " + m.Content
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestFoldAgentAndMetadata(t *testing.T) {
	metadata := Object{}.Set("k", 1)
	f := NewFold(Snapshot{Session: Session{SessionID: "s", AgentID: "a", Metadata: metadata}, CursorEventID: 5})
	metadata.Set("k", 0) // the fold has its own
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
	f.Apply(Event{EventID: 9, SessionID: "s", Type: Checkpoint, Metadata: Object{}.Set("k", 3)})
	if f.AgentID() != "b" || string(f.Metadata()["k"]) != "3" {
		t.Errorf("agent %q, metadata %s", f.AgentID(), f.Metadata())
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
	listed, named := partial("e"), partial("f")
	listed.Message.Metadata, named.Message.Metadata = Object{}.Set("v", []int{1}), Object{}.Set("v", "n")
	end := Event{Type: ToolPartial, ToolCallID: "x", Phase: PhaseEnd, Payload: &Payload{Result: &Message{ID: "m"}}}
	message := Event{Type: MessageAppended, Message: &Delta{Content: "m"}}
	unsaid, unpaid := Event{Type: Partial}, Event{Type: ToolPartial, ToolCallID: "x", Phase: PhaseStream}
	got := MergeIncrements([]Event{
		{Type: AssistantMessage, Phase: PhaseStart}, partial("a"), partial("b"), partial("c"),
		tool("x", PhaseStart, Payload{Part: text("")}),
		tool("x", PhaseStream, Payload{Part: text("1"), Progress: num(1), Total: num(9)}), tool("x", PhaseStream, Payload{Part: text("2"), Progress: num(2)}),
		tool("y", PhaseStream, Payload{Part: text("3")}), tool("x", PhaseStream, Payload{Part: text("4")}), tool("x", PhaseStream, Payload{Total: num(5)}), end,
		partial("d"), listed, named, unsaid, unpaid, unpaid, message, partial("g"), tool("x", PhaseStream, Payload{Progress: num(6)}), tool("x", PhaseStream, Payload{Part: text("5")}),
	})
	want := []Event{
		{Type: AssistantMessage, Phase: PhaseStart}, partial("abc"),
		tool("x", PhaseStart, Payload{Part: text("")}),
		tool("x", PhaseStream, Payload{Part: text("12"), Progress: num(2), Total: num(9)}),
		tool("y", PhaseStream, Payload{Part: text("3")}), tool("x", PhaseStream, Payload{Part: text("4"), Total: num(5)}), end,
		{Type: Partial, Message: &Delta{Role: RoleAssistant, Content: "de", Metadata: listed.Message.Metadata}}, named, unsaid, unpaid, unpaid,
		message, partial("g"), tool("x", PhaseStream, Payload{Part: text("5"), Progress: num(6)}),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := MergeIncrements([]Event{partial("a"), partial("b")}); !reflect.DeepEqual(got, []Event{partial("ab")}) {
		t.Errorf("two partials become %+v", got)
	}
	for _, alone := range []Event{partial("a"), tool("x", PhaseStream, Payload{Total: num(1)})} {
		if got := MergeIncrements([]Event{alone}); len(got) != 1 || !reflect.DeepEqual(got[0], alone) {
			t.Errorf("%+v alone becomes %+v", alone, got)
		}
	}
}

func TestMergeDelta(t *testing.T) {
	if got := mergeDelta(Delta{Role: RoleAssistant, Content: "a"}, Delta{Content: "b"}); got.Role != RoleAssistant {
		t.Errorf("an increment without a role makes it %q", got.Role)
	}
	faulty := Delta{Metadata: Object{"reasoning": []byte(`"`), "list": []byte(`[`), "none": nil}} // not JSON
	if got := mergeDelta(faulty, faulty); len(got.Metadata) != 3 {
		t.Errorf("faulty values become %s", got.Metadata)
	}
}
