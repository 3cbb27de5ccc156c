package openai

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"loquat"
	"loquat/internal/chat"
)

// The fields of a response go to the backend in the form of chat completions.
func TestParamsOfResponses(t *testing.T) {
	for body, want := range map[string]string{
		`{}`: `{}`,
		`{"temperature": 0.5, "max_output_tokens": 9, "parallel_tool_calls": false}`:                               `{"temperature":0.5,"max_completion_tokens":9,"parallel_tool_calls":false}`,
		`{"reasoning": {"effort": "low"}, "text": {"verbosity": "high"}}`:                                          `{"reasoning_effort":"low","verbosity":"high"}`,
		`{"text": {"format": {"type": "json_object"}}}`:                                                            `{"response_format":{"type":"json_object"}}`,
		`{"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}}}`: `{"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"},"strict":true}}}`,
		`{"tool_choice": "required"}`:                                                                              `{"tool_choice":"required"}`,
		`{"tool_choice": {"type": "function", "name": "f"}}`:                                                       `{"tool_choice":{"type":"function","function":{"name":"f"}}}`,
		`{"tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}]}}`:                 `{"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}}]}}}`,
		`{"service_tier": "flex", "prompt_cache_key": "k"}`:                                                        `{"service_tier":"flex","prompt_cache_key":"k"}`,
	} {
		var p plan
		if err := json.Unmarshal([]byte(body), &p.body); err != nil {
			t.Fatal(err)
		}
		params := loquat.Object{}
		for _, read := range []func(loquat.Object) error{p.readTools, p.readToolChoice, p.readText, p.readReasoning} {
			if err := read(params); err != nil {
				t.Errorf("%s: %v", body, err)
			}
		}
		p.setNumbers(params)
		if got, want := sorted(t, params), sorted(t, json.RawMessage(want)); got != want {
			t.Errorf("%s gives %s, want %s", body, got, want)
		}
	}
}

// sorted returns the JSON of a value with sorted keys.
func sorted(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var decoded any
	if err := json.Unmarshal(raw, &decoded); err != nil {
		t.Fatal(err)
	}
	raw, _ = json.Marshal(decoded)
	return string(raw)
}

// Neighbouring items of the assistant become one message.
func TestInputOfResponses(t *testing.T) {
	for input, want := range map[string]string{
		`"hi"`: `user "hi"`,
		`[{"role": "developer", "content": "a"}, {"role": "user", "content": [{"type": "input_text", "text": "b"}, {"type": "input_text", "text": "c"}]}]`: `system "a"; user "b\nc"`,
		`[{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]}, {"role": "assistant", "content": "a"},
		  {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}, {"type": "function_call", "call_id": "2", "name": "g", "arguments": "{}"},
		  {"type": "function_call_output", "call_id": "1", "output": "x"}, {"type": "function_call_output", "call_id": "2", "output": "y"}]`: `assistant "a" f g thinks "r"; tool "x"; tool "y"`,
		`[{"type": "reasoning", "content": "r"}, {"type": "reasoning", "summary": "s"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]`: `assistant "a" thinks "r\ns"; user "b"`,
		`[{"type": "compaction", "encrypted_content": "loquat-summary:So far."}, {"role": "user", "content": "b"}]`:                                               `system "So far."; user "b"`,
		`[{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]`:                                        `assistant "a"; assistant "b"; user "c"`,
		`[{"role": "user", "content": [{"type": "input_image", "image_url": "data:x"}, {"type": "input_image", "image_url": "https://x"}]}]`:                      `user "" {"data_url":"data:x","type":"image"} {"type":"image","url":"https://x"}`,
	} {
		messages, err := readInput("body.input", json.RawMessage(input), nil)
		if err != nil {
			t.Errorf("%s: %v", input, err)
		}
		var got []string
		for _, n := range messages {
			line := fmt.Sprintf("%s %q", n.Role, n.Content)
			for _, call := range (loquat.Message{Metadata: n.Metadata}).ToolCalls() {
				line += " " + call.Name
			}
			if text, _ := reasoningOf(n.Metadata); text != "" {
				line += fmt.Sprintf(" thinks %q", text)
			}
			for _, image := range n.Attachments {
				line += " " + string(image)
			}
			got = append(got, line)
		}
		if got := strings.Join(got, "; "); got != want {
			t.Errorf("%s gives %s, want %s", input, got, want)
		}
	}
}

// reply is the message of the streams that are tested.
func reply() loquat.Message {
	calls := []loquat.ToolCall{{ID: "c", Name: "f", Arguments: `{"a": "ü"}`}, {ID: "d", Name: "own", Arguments: "{}"}}
	return loquat.Message{
		ID: chat.ReplyID("q", 0), Role: loquat.RoleAssistant, Content: "Grüße aus 世界, und so weiter.",
		Metadata: loquat.Object{}.Set(loquat.MetaReasoningContent, "Erst dénken, 然后 schreiben.").Set(loquat.MetaToolCalls, calls),
	}
}

// streamOf returns what a client gets after a sequence number: deltas joined for each item, all else as it is.
func streamOf(t *testing.T, after int64, feed func(*responseStream) error) (lines []string, numbers []int64) {
	t.Helper()
	w := httptest.NewRecorder()
	s := &responseStream{out: &sseWriter{w, func() error { return nil }}, after: after}
	s.RequestID, s.functions = "q", functions{"f": {Name: "f"}}
	if err := feed(s); err != nil {
		t.Fatal(err)
	}
	deltas := ""
	for line := range strings.Lines(w.Body.String()) {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || strings.HasPrefix(data, "[DONE]") {
			continue
		}
		var e map[string]any
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, int64(e["sequence_number"].(float64)))
		if delta, ok := e["delta"].(string); ok {
			deltas += delta
			continue
		}
		if deltas != "" {
			lines, deltas = append(lines, deltas), ""
		}
		lines = append(lines, data)
	}
	return append(lines, deltas), numbers
}

// increments returns the texts of a reply in random pieces, as the log has them.
func increments(m loquat.Message, random *rand.Rand) (out []loquat.Event) {
	reasoning, _ := reasoningOf(m.Metadata)
	for i, text := range []string{reasoning, m.Content} {
		for text != "" {
			n := min(len(text), 1+random.IntN(9))
			for n < len(text) && !utf8.RuneStart(text[n]) {
				n++
			}
			d := loquat.Delta{Role: loquat.RoleAssistant, Content: text[:n]}
			if i == 0 {
				d = loquat.Delta{Role: loquat.RoleAssistant, Metadata: loquat.Object{}.Set(loquat.MetaReasoningContent, text[:n])}
			}
			out, text = append(out, loquat.Event{Type: loquat.Partial, Message: &d}), text[n:]
		}
	}
	return out
}

// However the log has cut and merged a reply, a client that resumes after any number gets the rest, as
// from the stored message.
func TestStreamsResumeFromAnyIncrements(t *testing.T) {
	m, random := reply(), rand.New(rand.NewPCG(1, 2))
	stored := func(s *responseStream) error { return s.final(m) }
	for range 8 {
		list := increments(m, random)
		list = list[:random.IntN(len(list)+1)] // the others were merged into the final
		live := func(s *responseStream) error {
			for _, e := range append(list, loquat.Event{Type: loquat.Final, Messages: []loquat.Message{m}}) {
				if err := s.take(e); err != nil {
					return err
				}
			}
			return nil
		}
		whole, numbers := streamOf(t, -1, live)
		if want, _ := streamOf(t, -1, stored); strings.Join(whole, "") != strings.Join(want, "") {
			t.Fatalf("live:\n%s\nstored:\n%s", strings.Join(whole, ""), strings.Join(want, ""))
		}
		if !slices.IsSorted(numbers) || len(slices.Compact(slices.Clone(numbers))) != len(numbers) {
			t.Fatalf("the numbers are %v", numbers)
		}
		for n := range int64(len(m.Content)) { // also numbers that no client got
			numbers = append(numbers, n, sequenceItems+sequenceRange+n)
		}
		for _, n := range numbers {
			rest, _ := streamOf(t, n, live)
			if want, _ := streamOf(t, n, stored); strings.Contains(strings.Join(want, ""), "\ufffd") || strings.Join(rest, "") != strings.Join(want, "") {
				t.Fatalf("after %d live:\n%s\nstored:\n%s", n, strings.Join(rest, ""), strings.Join(want, ""))
			}
		}
	}
}

// interleaved returns a reply whose reasoning goes on after the text has begun, and the increments that
// a request publishes of it, merged at random as commits and windows do.
func interleaved(t *testing.T, random *rand.Rand) (loquat.Message, []loquat.Event) {
	t.Helper()
	var list []loquat.Event
	reasoning, content, before := "", "", -1
	for i, piece := range []string{"Erst ", "dénken. ", "Grüße ", "然后 ", "aus ", "noch ein Gedanke", " 世界"} {
		if i < 2 && random.IntN(2) == 0 {
			continue
		}
		d := loquat.Delta{Role: loquat.RoleAssistant, Content: piece}
		if i < 2 || i == 3 || i == 5 {
			if content != "" && before < 0 {
				before = len(reasoning)
			}
			reasoning += piece
			d = loquat.Delta{Role: loquat.RoleAssistant, Metadata: loquat.Object{}.Set(loquat.MetaReasoningContent, piece)}
			if before >= 0 {
				d.Metadata.Set(loquat.MetaReasoningBefore, before)
			}
		} else {
			content += piece
		}
		list = append(list, loquat.Event{Type: loquat.Partial, Message: &d})
	}
	var merged []loquat.Event
	for len(list) > 0 {
		n := 1 + random.IntN(len(list))
		merged, list = append(merged, loquat.MergeIncrements(list[:n])...), list[n:]
	}
	return loquat.Message{
		ID: chat.ReplyID("q", 0), Role: loquat.RoleAssistant, Content: content,
		Metadata: loquat.Object{}.Set(loquat.MetaReasoningContent, reasoning).Set(loquat.MetaReasoningBefore, before),
	}, merged
}

// Reasoning that comes after the text has the same place in the live events and in the stored output,
// however the log has merged both, so a client can resume after any event.
func TestReasoningAfterTheText(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		m, list := interleaved(t, random)
		stored := func(s *responseStream) error { return s.final(m) }
		live := func(s *responseStream) error {
			for _, e := range append(list, loquat.Event{Type: loquat.Final, Messages: []loquat.Message{m}}) {
				if err := s.take(e); err != nil {
					return err
				}
			}
			return nil
		}
		_, numbers := streamOf(t, -1, live)
		for _, n := range append(numbers, -1) {
			got, _ := streamOf(t, n, live)
			want, _ := streamOf(t, n, stored)
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Fatalf("after %d live:\n%s\nstored:\n%s", n, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		var done []string
		whole, _ := streamOf(t, -1, live)
		for _, line := range whole {
			var e struct {
				Type string         `json:"type"`
				Item map[string]any `json:"item"`
			}
			if json.Unmarshal([]byte(line), &e) == nil && e.Type == "response.output_item.done" {
				done = append(done, sorted(t, e.Item))
			}
		}
		var output []string
		for _, item := range itemsOf(m, nil) {
			output = append(output, sorted(t, item.body()))
		}
		if !slices.Equal(done, output) {
			t.Fatalf("the items of the stream are\n%s\nand those of the output\n%s", done, output)
		}
	}
}

// A backend's stream that began again sends no deltas of its new text.
func TestStreamOfARestart(t *testing.T) {
	m := loquat.Message{Role: loquat.RoleAssistant, Content: "new text"}
	lines, _ := streamOf(t, -1, func(s *responseStream) error {
		for _, d := range []loquat.Delta{{Content: "old"}, {Content: "new ", Metadata: loquat.Object{}.Set(loquat.MetaStreamRestarted, true)}, {Content: "text"}} {
			if err := s.partial(d); err != nil {
				return err
			}
		}
		return s.final(m)
	})
	all := strings.Join(lines, "\n")
	if !strings.Contains(all, "\nold\n") || strings.Count(all, `"text":"new text"`) != 3 {
		t.Errorf("the events are\n%s", all)
	}
}

// What a stream that began again has not sent yet is sent in deltas.
func TestStreamOfARestartBeforeTheText(t *testing.T) {
	again := loquat.Object{}.Set(loquat.MetaStreamRestarted, true)
	thought := func(text string) loquat.Object { return loquat.Object{}.Set(loquat.MetaReasoningContent, text) }
	for name, before := range map[string][]loquat.Delta{
		"in the reasoning": {{Metadata: thought("old thought")}, {Metadata: thought("new thought").Set(loquat.MetaStreamRestarted, true)}},
		"before anything":  {{Metadata: again}},
	} {
		m := loquat.Message{Role: loquat.RoleAssistant, Content: "the text", Metadata: thought("new thought")}
		lines, _ := streamOf(t, -1, func(s *responseStream) error {
			for _, d := range append(before, loquat.Delta{Content: "the "}, loquat.Delta{Content: "te"}) {
				if err := s.partial(d); err != nil {
					return err
				}
			}
			return s.final(m)
		})
		if all := strings.Join(lines, "\n"); !strings.Contains(all, "\nthe text\n{") || strings.Contains(all, "old thoughtnew") {
			t.Errorf("%s: the events are\n%s", name, all)
		}
	}
}

// The log may merge the increment with which a stream began again into the message. Its text is not joined with
// what the client has of the text before.
func TestStreamOfARestartThatIsMerged(t *testing.T) {
	m := loquat.Message{Role: loquat.RoleAssistant, Content: "né text, all of it"}
	lines, _ := streamOf(t, -1, func(s *responseStream) error {
		if err := s.partial(loquat.Delta{Content: "ol"}); err != nil {
			return err
		}
		return s.final(m)
	})
	if all := strings.Join(lines, "\n"); !strings.Contains(all, "\nol\n{") || strings.Count(all, `"text":"né text, all of it"`) != 3 {
		t.Errorf("the events are\n%s", all)
	}
}

// An error in mid-stream has the number of the last event, so that a program that resumes after it gets the rest.
func TestStreamResumesAfterAnError(t *testing.T) {
	m := loquat.Message{ID: chat.ReplyID("q", 0), Role: loquat.RoleAssistant, Content: "one two"}
	first := &loquat.Delta{Content: "one "}
	begun := func(s *responseStream) error { return s.partial(*first) }
	whole, _ := streamOf(t, -1, func(s *responseStream) error { return s.final(m) })
	seen, numbers := streamOf(t, -1, func(s *responseStream) error {
		err := begun(s)
		s.fail(nil, loquat.Errorf(loquat.CodeUnavailable, "the server stops"))
		return err
	})
	if !strings.Contains(strings.Join(seen, ""), "the server stops") {
		t.Fatalf("the events are %s", seen)
	}
	rest, _ := streamOf(t, numbers[len(numbers)-1], func(s *responseStream) error { return s.final(m) })
	if !strings.HasPrefix(rest[0], "two") || !slices.Equal(rest[1:], whole[3:]) {
		t.Errorf("after the error come\n%s\nafter the whole\n%s", strings.Join(rest, "\n"), strings.Join(whole, "\n"))
	}
}

// Text of a stream that began again without it does not become the arguments of a call, and no item stays open.
func TestStreamClosesWhatIsOpen(t *testing.T) {
	calls := []loquat.ToolCall{{ID: "c", Name: "f", Arguments: `{"a": 1}`}}
	m := loquat.Message{ID: chat.ReplyID("q", 0), Role: loquat.RoleAssistant, Metadata: loquat.Object{}.Set(loquat.MetaToolCalls, calls)}
	lines, numbers := streamOf(t, -1, func(s *responseStream) error {
		if err := s.partial(loquat.Delta{Content: "abc"}); err != nil {
			return err
		}
		if err := s.partial(loquat.Delta{Metadata: loquat.Object{}.Set(loquat.MetaStreamRestarted, true)}); err != nil {
			return err
		}
		return s.final(m)
	})
	all := strings.Join(lines, "\n")
	if strings.Count(all, "response.output_item.done") != 2 || !strings.Contains(all, `"name":"f"`) || strings.Contains(all, `"text":"{`) {
		t.Errorf("the events are\n%s", all)
	}
	if !slices.IsSorted(numbers) {
		t.Errorf("the numbers are %v", numbers)
	}
	lines, _ = streamOf(t, -1, func(s *responseStream) error {
		err := s.partial(loquat.Delta{Content: "abc"})
		s.end()
		return err
	})
	if all := strings.Join(lines, "\n"); !strings.Contains(all, `"text":"abc"`) || !strings.Contains(all, "response.output_item.done") {
		t.Errorf("a response that ended without a message gives\n%s", all)
	}
}

// References cannot make a small body large.
func TestReferencesAreBounded(t *testing.T) {
	large := strings.Repeat("x", maxReferenced/4)
	lookup := lookupIn(func(requestID string) ([]outputItem, error) {
		return []outputItem{{kind: itemMessage, id: itemID(itemMessage, chat.ReplyID(requestID, 0)), text: large, status: statusCompleted}}, nil
	})
	reference := func(request string) string {
		return `{"type": "item_reference", "id": "` + itemID(itemMessage, chat.ReplyID(request, 0)) + `"}`
	}
	items := strings.Repeat(reference("q")+`, `, 4)
	if _, err := readInput("body.input", json.RawMessage(`[`+items+`{"role": "user", "content": "x"}]`), lookup); err != nil {
		t.Error(err)
	}
	if _, err := readInput("body.input", json.RawMessage(`[`+reference("q")+`, {"role": "user", "content": "x"}]`), lookup); loquat.CodeOf(err) != loquat.CodeTooLarge {
		t.Errorf("one more gives %v", err)
	}
	large, items = "x", ""
	for i := range maxResponses + 1 {
		items += reference(fmt.Sprint("q", i)) + `, `
	}
	lookup = lookupIn(func(requestID string) ([]outputItem, error) {
		return []outputItem{{kind: itemMessage, id: itemID(itemMessage, chat.ReplyID(requestID, 0)), text: large, status: statusCompleted}}, nil
	})
	if _, err := readInput("body.input", json.RawMessage(`[`+items+`{"role": "user", "content": "x"}]`), lookup); loquat.CodeOf(err) != loquat.CodeTooLarge {
		t.Errorf("%d responses give %v", maxResponses+1, err)
	}
}

// A client that has events of an item that a restart of the backend's stream made void gets the last
// event, too: otherwise its stream would have no end.
func TestEndAfterARestart(t *testing.T) {
	m := loquat.Message{ID: chat.ReplyID("q", 0), Role: loquat.RoleAssistant, Content: "new text"}
	stored := func(s *responseStream) error {
		s.Status, s.Replies = loquat.StatusCompleted, []loquat.Message{m}
		err := s.replay()
		s.end()
		return err
	}
	const last = sequenceItems + sequenceRange
	for after, want := range map[int64]int64{-1: last, last - 1: last, last: 0, last + placePart + 3: last + placePart + 4} {
		lines, numbers := streamOf(t, after, stored)
		got := int64(0)
		if len(numbers) > 0 {
			got = numbers[len(numbers)-1]
		}
		if all := strings.Join(lines, "\n"); got != want || strings.Contains(all, "response.completed") != (want > 0) {
			t.Errorf("after %d the last number is %d, want %d:\n%s", after, got, want, all)
		}
	}
}

// The items of a compaction can be sent as they are. An image that only this server has is named in words.
func TestCompactionWithImages(t *testing.T) {
	m := loquat.Message{ID: "1", Role: loquat.RoleUser, Content: "Look.", Metadata: loquat.Object{}.Set(loquat.MetaAttachments,
		[]map[string]any{{"type": "image", "asset_id": "a"}, {"type": "image", "url": "https://x"}, {"type": "image", "asset_id": "b"}})}
	raw, err := json.Marshal(newCompaction([]loquat.Message{m}, "Summary.", loquat.Reply{}).Output)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := readMessages("body.input", raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := "Look.\n" + uploadLeftOut + "\n" + uploadLeftOut; messages[0].Content != want || len(messages[0].Attachments) != 1 {
		t.Errorf("the message is %+v", messages[0])
	}
}

// What reads the messages of a session waits for room in memory, or is one of the few that follow.
func TestReadsWaitForRoom(t *testing.T) {
	for _, r := range (&API{}).Face().Routes {
		reads := strings.Contains(r.Path, "{response_id}") || strings.Contains(r.Path, "items")
		if r.Method == http.MethodGet && reads && !r.Large && !r.Follows {
			t.Errorf("GET %s reads messages whatever else is in memory", r.Path)
		}
	}
}
