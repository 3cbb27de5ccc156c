package loquat

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// mergeDelta merges two increments.
func mergeDelta(earlier, later Delta) Delta {
	var in mergedDelta
	in.add(earlier)
	in.add(later)
	return in.delta()
}

func partialOf(request, text string, meta Object) Event {
	return Event{Type: Partial, RequestID: request, Message: &Delta{Role: RoleAssistant, Content: text, Metadata: meta}}
}

func toolPartialOf(request, call string) Event {
	return Event{Type: ToolPartial, RequestID: request, ToolCallID: call, Phase: PhaseStream, Payload: &Payload{Part: new(string)}}
}

func resultsOf(request string, calls ...string) Event {
	e := Event{Type: ToolResults, RequestID: request}
	for _, id := range calls {
		e.Messages = append(e.Messages, Message{Role: RoleTool, Metadata: Object{}.Set(MetaToolCallID, id)})
	}
	return e
}

func TestCompact(t *testing.T) {
	restarted := Object{}.Set(MetaStreamRestarted, true)
	meta := func(s string) (o Object) {
		if err := json.Unmarshal([]byte(s), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	for _, tc := range []struct {
		name   string
		window []Event
		want   string // ids, with the content of partials
	}{
		{"nothing to do", []Event{{Type: RequestStarted, RequestID: "r"}, {Type: Checkpoint}}, "1 2"},
		{"one partial", []Event{partialOf("r", "a", nil)}, "1:a"},
		{"neighbours are merged", []Event{partialOf("r", "a", nil), partialOf("r", "b", nil), partialOf("r", "c", nil)}, "3:abc"},
		{"events of other requests do not separate partials",
			[]Event{partialOf("r", "a", nil), {Type: Checkpoint}, partialOf("q", "x", nil), partialOf("r", "b", nil)}, "2 3:x 4:ab"},
		{"an event of the same request separates partials",
			[]Event{partialOf("r", "a", nil), {Type: RetryScheduled, RequestID: "r"}, partialOf("r", "b", nil)}, "1:a 2 3:b"},
		{"a dropped event does not separate partials",
			[]Event{partialOf("r", "a", nil), toolPartialOf("r", "c"), partialOf("r", "b", nil), resultsOf("r", "c")}, "3:ab 4"},
		{"a final follows", []Event{partialOf("r", "a", nil), {Type: Final, RequestID: "r"}, partialOf("r", "b", nil)}, "2 3:b"},
		{"a final of another request follows", []Event{partialOf("r", "a", nil), {Type: Final, RequestID: "q"}}, "1:a 2"},
		{"the end of the request follows",
			[]Event{partialOf("r", "a", nil), toolPartialOf("r", "c"), {Type: RequestCompleted, RequestID: "r"}}, "3"},
		{"an error alone drops nothing", []Event{partialOf("r", "a", nil), {Type: ErrorEvent, RequestID: "r"}}, "1:a 2"},
		{"results of one of two calls", []Event{toolPartialOf("r", "c"), toolPartialOf("r", "d"), resultsOf("r", "d")}, "1 3"},
		{"results of the same call of another request", []Event{toolPartialOf("r", "c"), resultsOf("q", "c")}, "1 2"},
		{"a final drops no tool_partial", []Event{toolPartialOf("r", "c"), {Type: Final, RequestID: "r"}}, "1 2"},
		{"results without a call", []Event{toolPartialOf("r", ""), resultsOf("r", "")}, "1 2"},
		{"partials without a request", []Event{partialOf("", "a", nil), partialOf("", "b", nil)}, "1:a 2:b"},
		{"a message of the same request separates partials",
			[]Event{partialOf("r", "a", nil), {Type: MessageAppended, RequestID: "r", Message: &Delta{Content: "m"}}, partialOf("r", "b", nil)}, "1:a 2 3:b"},
		{"earlier results do not count", []Event{resultsOf("r", "c"), toolPartialOf("r", "c")}, "1 2"},
		{"a restart drops the earlier text",
			[]Event{partialOf("r", "void", nil), partialOf("r", "a", restarted), partialOf("r", "b", nil)}, `3:ab{"stream_restarted":true}`},
		{"a later partial cannot undo a restart",
			[]Event{partialOf("r", "a", restarted), partialOf("r", "b", Object{}.Set(MetaStreamRestarted, false))}, `2:ab{"stream_restarted":true}`},
		{"reasoning is concatenated",
			[]Event{partialOf("r", "", meta(`{"reasoning":"x","reasoning_content":"1"}`)), partialOf("r", "", meta(`{"reasoning":"\"y"}`))},
			`2:{"reasoning":"x\"y","reasoning_content":"1"}`},
		{"lists are concatenated; of other metadata the later value wins",
			[]Event{partialOf("r", "", meta(`{"l":[1],"e":[],"v":"a","w":1}`)), partialOf("r", "", meta(`{"l":[{}],"e":[2],"v":"b"}`))},
			`2:{"e":[2],"l":[1,{}],"v":"b","w":1}`},
		{"a metadata key that changes its kind separates partials",
			[]Event{partialOf("r", "a", meta(`{"reasoning":"x"}`)), partialOf("r", "b", meta(`{"reasoning":null}`)), partialOf("r", "c", nil)},
			`1:a{"reasoning":"x"} 3:bc{"reasoning":null}`},
		{"partials before and after such a change are merged",
			[]Event{partialOf("r", "a", meta(`{"v":1}`)), partialOf("r", "b", nil), partialOf("r", "c", meta(`{"v":[]}`)), partialOf("r", "d", nil)},
			`2:ab{"v":1} 4:cd{"v":[]}`},
		{"a restart may change the kind of a metadata key",
			[]Event{partialOf("r", "a", meta(`{"v":1}`)), partialOf("r", "b", meta(`{"v":[],"stream_restarted":true}`))},
			`2:b{"stream_restarted":true,"v":[]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := summarize(t, Compact(records(t, tc.window...))); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// summarize lists the ids of a window, and the contents and metadata of its partials.
func summarize(t *testing.T, window []Record) string {
	t.Helper()
	var b []byte
	for _, rec := range window {
		if b != nil {
			b = append(b, ' ')
		}
		b = append(b, strings.TrimLeft(rec.ID.String(), "0")...)
		if rec.Type != Partial {
			continue
		}
		e, err := rec.Decode()
		if err != nil {
			t.Fatal(err)
		}
		b = append(append(b, ':'), e.Message.Content...)
		if e.Message.Metadata != nil {
			b = appendObject(b, e.Message.Metadata)
		}
	}
	return string(b)
}

func TestCompactKeepsUndecodableRecords(t *testing.T) {
	for _, body := range []string{`{`, `{}`, `{"message":3}`} {
		window := records(t, partialOf("r", "a", nil), partialOf("r", "b", nil), partialOf("r", "c", nil), toolPartialOf("r", "c"), resultsOf("r", "c"))
		window[1].Body = []byte(body)
		window[4].Body = []byte(`{"messages":3}`)
		got := Compact(window)
		if !reflect.DeepEqual(got, window) {
			t.Errorf("with a partial %s: got %v", body, got)
		}
	}
}

func TestCompactWithoutIncrementsAllocatesNothing(t *testing.T) {
	window := records(t, Event{Type: RequestStarted, RequestID: "r"}, Event{Type: Final, RequestID: "r"}, Event{Type: Checkpoint})
	if n := testing.AllocsPerRun(20, func() { Compact(window) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// naiveCompact implements the rules literally, without regard to cost.
func naiveCompact(t *rapid.T, window []Record) []Record {
	var kept []Record
	for i, rec := range window {
		if !isSuperseded(t, rec, window[i+1:]) {
			kept = append(kept, rec)
		}
	}
	for {
		i, j := findPair(t, kept)
		if j == 0 {
			return kept
		}
		first, _ := kept[i].Decode()
		next, _ := kept[j].Decode()
		d := mergeDelta(*first.Message, *next.Message)
		next.Message = &d
		kept[j] = record(t, kept[j].ID, next)
		kept = slices.Delete(kept, i, i+1)
	}
}

func isSuperseded(t *rapid.T, rec Record, rest []Record) bool {
	for _, later := range rest {
		if later.RequestID != rec.RequestID {
			continue
		}
		switch {
		case rec.Type == Partial && (later.Type == Final || later.Type == RequestCompleted),
			rec.Type == ToolPartial && later.Type == RequestCompleted:
			return true
		case rec.Type == ToolPartial && later.Type == ToolResults:
			partial, err := rec.Decode()
			if err != nil {
				t.Fatal(err)
			}
			results, _ := later.Decode()
			for _, m := range results.Messages {
				if m.Metadata.String(MetaToolCallID) == partial.ToolCallID {
					return true
				}
			}
		}
	}
	return false
}

// findPair returns the indices of the first two partials that must be merged, or 0, 0.
func findPair(t *rapid.T, window []Record) (int, int) {
	for i, rec := range window {
		if rec.Type != Partial {
			continue
		}
		j := slices.IndexFunc(window[i+1:], func(r Record) bool { return r.RequestID == rec.RequestID }) + i + 1
		if j == i || window[j].Type != Partial {
			continue
		}
		first, err := rec.Decode()
		if err != nil {
			t.Fatal(err)
		}
		next, _ := window[j].Decode()
		if canMerge(first.Message.Metadata, next.Message.Metadata) {
			return i, j
		}
	}
	return 0, 0
}

// canMerge reports whether no key changes its kind from a to b.
func canMerge(a, b Object) bool {
	if b.Bool(MetaStreamRestarted) {
		return true
	}
	for key := range a {
		kinds := func(o Object) (text, list bool) {
			var v any
			_ = json.Unmarshal(o[key], &v)
			_, text = v.(string)
			_, list = v.([]any)
			return text && strings.HasPrefix(key, "reasoning"), list
		}
		if b[key] == nil {
			continue
		}
		at, al := kinds(a)
		bt, bl := kinds(b)
		if at != bt || al != bl {
			return false
		}
	}
	return true
}

func TestCompactProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := drawLog(t, rapid.IntRange(1, 3).Draw(t, "sessions"))
		from := rapid.IntRange(0, len(log)-1).Draw(t, "from")
		window := log[from : from+rapid.IntRange(1, len(log)-from).Draw(t, "n")]
		before := slices.Clone(window)
		for i := range before {
			before[i].Body = bytes.Clone(before[i].Body)
		}

		got := Compact(window)
		checkSame(t, "the window after Compact and the window before", window, before)
		checkSame(t, "the results of Compact and of the naive model", got, naiveCompact(t, window))
		checkSame(t, "the results of Compact twice and once", Compact(got), got)
		if len(got) > len(window) || got[len(got)-1].ID != window[len(window)-1].ID {
			t.Fatalf("%d of %d records, the last is %s", len(got), len(window), got[len(got)-1].ID)
		}
		for _, id := range sessionsOf(window) {
			checkSame(t, "the session's part of the result and the result of the session's part", filterSession(got, id), Compact(filterSession(window, id)))
		}
	})
}

func TestCompactForPush(t *testing.T) {
	window := []Event{partialOf("r", "a", nil), partialOf("r", "b", nil), partialOf("q", "x", nil), partialOf("r", "c", nil), {Type: Checkpoint}, partialOf("r", "d", nil)}
	if got, want := summarize(t, CompactForPush(records(t, window...))), "2:ab 3:x 4:c 5 6:d"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A client whose connection breaks after any event of a pushed window, and that resumes
// after that event, ends in the same state as a client that received the whole window.
func TestPushResumesAfterAnyEvent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := drawLog(t, rapid.IntRange(2, 3).Draw(t, "sessions"))
		n := rapid.IntRange(1, len(log)).Draw(t, "n")
		for n > 1 && log[n-1].Type != Partial {
			n-- // end the window with a partial: only an open draft shows lost text
		}
		window := log[:n]
		pushed := CompactForPush(window)
		checkSame(t, "the results of CompactForPush twice and once", CompactForPush(pushed), pushed)
		for k := range len(pushed) + 1 {
			received, rest := pushed[:k], window
			if k > 0 {
				rest = slices.DeleteFunc(slices.Clone(window), func(rec Record) bool { return rec.ID <= received[k-1].ID })
			}
			for _, id := range sessionsOf(window) {
				whole, cut := NewFold(Snapshot{Session: Session{SessionID: id}}), NewFold(Snapshot{Session: Session{SessionID: id}})
				applyAll(t, whole, window)
				applyAll(t, cut, received)
				applyAll(t, cut, CompactForPush(rest))
				if !reflect.DeepEqual(cut.Messages(), whole.Messages()) || !reflect.DeepEqual(cut.Draft(), whole.Draft()) {
					t.Fatalf("cut after %d of %d: %+v %+v, uncut: %+v %+v", k, len(pushed), cut.Messages(), cut.Draft(), whole.Messages(), whole.Draft())
				}
			}
		}
	})
}

func sessionsOf(window []Record) (ids []string) {
	for _, rec := range window {
		if !slices.Contains(ids, rec.SessionID) {
			ids = append(ids, rec.SessionID)
		}
	}
	return ids
}

func filterSession(window []Record, session string) (out []Record) {
	for _, rec := range window {
		if rec.SessionID == session {
			out = append(out, rec)
		}
	}
	return out
}

func checkSame(t *rapid.T, what string, a, b []Record) {
	t.Helper()
	if len(a) != len(b) {
		t.Fatalf("%s differ: %d and %d records", what, len(a), len(b))
	}
	for i := range a {
		if !reflect.DeepEqual(a[i], b[i]) {
			t.Fatalf("%s differ at %d:\n%s %s\n%s %s", what, i, a[i].ID, a[i].Body, b[i].ID, b[i].Body)
		}
	}
}

func BenchmarkCompact(b *testing.B) {
	stream := func(end ...Event) []Record {
		var window []Record
		for i := range 1000 {
			window = append(window, record(b, EventID(i+1), partialOf("r", "some words ", nil)))
		}
		for _, e := range end {
			window = append(window, record(b, EventID(len(window)+1), e))
		}
		return window
	}
	for name, window := range map[string][]Record{
		"merge": stream(),
		"drop":  stream(Event{Type: Final, RequestID: "r"}),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Compact(window)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(window)), "ns/record")
		})
	}
}
