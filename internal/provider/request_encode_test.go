package provider

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/provider/providertest"
)

// sent returns the body that is sent for a request.
func sent(t *testing.T, req loquat.LLMRequest) loquat.Object {
	t.Helper()
	s, err := readSettings(req.Config)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.encode(t.Context(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(b.reader(func() {}))
	if err != nil || int64(len(raw)) != b.size {
		t.Fatalf("%d bytes of %d, %v", len(raw), b.size, err)
	}
	again, _ := io.ReadAll(b.reader(func() {}))
	if string(again) != string(raw) {
		t.Errorf("a second reading differs")
	}
	var body loquat.Object
	if err := json.Unmarshal(raw, &body); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return body
}

func configWith(set string) loquat.Object {
	c := providertest.Config(providertest.URL)
	var over loquat.Object
	if set != "" {
		if err := json.Unmarshal([]byte(set), &over); err != nil {
			panic(err)
		}
	}
	for k, v := range over {
		c[k] = v
	}
	return c
}

func parsed(s string) (o loquat.Object) {
	if s != "" {
		if err := json.Unmarshal([]byte(s), &o); err != nil {
			panic(err)
		}
	}
	return o
}

func TestBody(t *testing.T) {
	tool := json.RawMessage(`{"type":"function","function":{"name":"f"}}`)
	for _, tc := range []struct {
		name, config, params string
		tools                []json.RawMessage
		stream               bool
		want                 string
	}{
		{"plain", "", "", nil, false, `{"model":"m","stream":false}`},
		{"stream", "", "", nil, true, `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`},
		{"no usage", `{"include_usage":false}`, "", nil, true, `{"model":"m","stream":true}`},
		{"null removes", "", `{"stream_options":null,"other":null}`, nil, true, `{"model":"m","stream":true}`},
		{"params", "", `{"temperature":0.5,"max_tokens":7,"stop":["a"]}`, nil, false, `{"model":"m","stream":false,"temperature":0.5,"max_tokens":7,"stop":["a"]}`},
		{"own fields stay", "", `{"model":"x","stream":true,"messages":[]}`, nil, false, `{"model":"m","stream":false}`},
		{"own fields are not removed", "", `{"model":null,"stream":null,"messages":null}`, nil, false, `{"model":"m","stream":false}`},
		{"tools", "", "", []json.RawMessage{tool}, false, `{"model":"m","stream":false,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto"}`},
		{"tools of config", `{"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}],"tool_choice":"required"}`, "", []json.RawMessage{tool}, false,
			`{"model":"m","stream":false,"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}],"tool_choice":"required"}`},
		{"tools that are removed", "", `{"tools":null}`, []json.RawMessage{tool}, false, `{"model":"m","stream":false}`},
		{"no tools, no choice", `{"tools":[],"tool_choice":"required"}`, "", nil, false, `{"model":"m","stream":false}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			body := sent(t, loquat.LLMRequest{Config: configWith(tc.config), Params: parsed(tc.params), Tools: tc.tools, Stream: tc.stream, Messages: providertest.UserSays("hi")})
			if !providertest.SameJSON(body["messages"], json.RawMessage(`[{"role":"user","content":"hi"}]`)) {
				t.Errorf("messages %s", body["messages"])
			}
			delete(body, "messages")
			got, _ := json.Marshal(body)
			if !providertest.SameJSON(got, json.RawMessage(tc.want)) {
				t.Errorf("got %s\nwant %s", got, tc.want)
			}
		})
	}
}

const (
	callA = `{"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]`
	sentA = `"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]`
)

func TestHistory(t *testing.T) {
	type m struct{ role, content, metadata string }
	for _, tc := range []struct {
		name, config string
		messages     []m
		want         string
	}{
		{"texts", "", []m{{"system", "s", ""}, {"user", "u", ""}, {"assistant", "a", ""}, {"user", "", ""}},
			`[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"user","content":""}]`},
		{"empty assistant is left out", "", []m{{"user", "u", ""}, {"assistant", "", `{"reasoning":"hm"}`}}, `[{"role":"user","content":"u"}]`},
		{"orphan tool message is left out", "", []m{{"user", "u", ""}, {"tool", "r", `{"tool_call_id":"a"}`}}, `[{"role":"user","content":"u"}]`},
		{"call and result", "", []m{{"assistant", "", callA + "}"}, {"tool", "r", `{"tool_call_id":"a"}`}},
			`[{"role":"assistant","content":null,` + sentA + `},{"role":"tool","content":"r","tool_call_id":"a"}]`},
		{"empty_content string", `{"empty_content":"string"}`, []m{{"assistant", "", callA + "}"}, {"tool", "r", `{"tool_call_id":"a"}`}},
			`[{"role":"assistant","content":"",` + sentA + `},{"role":"tool","content":"r","tool_call_id":"a"}]`},
		{"call without result", "", []m{{"assistant", "t", callA + "}"}, {"user", "u", ""}},
			`[{"role":"assistant","content":"t",` + sentA + `},{"role":"tool","content":"` + lostResult + `","tool_call_id":"a"},{"role":"user","content":"u"}]`},
		{"result that comes late", "", []m{{"assistant", "", callA + "}"}, {"user", "u", ""}, {"tool", "r", `{"tool_call_id":"a"}`}, {"tool", "again", `{"tool_call_id":"a"}`}},
			`[{"role":"assistant","content":null,` + sentA + `},{"role":"tool","content":"r","tool_call_id":"a"},{"role":"user","content":"u"}]`},
		{"result behind the next assistant is too late", "", []m{{"assistant", "", callA + "}"}, {"assistant", "x", ""}, {"tool", "r", `{"tool_call_id":"a"}`}},
			`[{"role":"assistant","content":null,` + sentA + `},{"role":"tool","content":"` + lostResult + `","tool_call_id":"a"},{"role":"assistant","content":"x"}]`},
		{"calls go back as they came", "", []m{{"assistant", "", `{"tool_calls":[{"id":"a","type":"function","extra_content":{"s":1},"function":{"name":"f","arguments":"{ \"x\": 1 }","strict":true}},{"id":"b","function":{"name":"g","arguments":null}}]}`}, {"tool", "2", `{"tool_call_id":"b"}`}, {"tool", "1", `{"tool_call_id":"a"}`}},
			`[{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","extra_content":{"s":1},"function":{"name":"f","arguments":"{ \"x\": 1 }","strict":true}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]},{"role":"tool","content":"1","tool_call_id":"a"},{"role":"tool","content":"2","tool_call_id":"b"}]`},
		{"images", "", []m{{"user", "u", `{"attachments":[{"type":"image","url":"https://x/y.png"},{"type":"image","data_url":"data:image/png;base64,AA=="}]}`}},
			`[{"role":"user","content":[{"type":"text","text":"u"},{"type":"image_url","image_url":{"url":"https://x/y.png"}},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]`},
		{"image without text", "", []m{{"user", "", `{"attachments":[{"type":"image","url":"https://x/y.png"}]}`}},
			`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}]`},
		{"images not allowed", `{"allow_image_attachment_base64":false,"allow_image_attachment_url":false}`,
			[]m{{"user", "u", `{"attachments":[{"type":"image","url":"https://x/y.png"},{"type":"image","url":"data:image/png;base64,AA=="}]}`}},
			`[{"role":"user","content":[{"type":"text","text":"u"},{"type":"text","text":"` + noteURL + `"},{"type":"text","text":"` + noteData + `"}]}]`},
		{"asset nobody resolved", "", []m{{"user", "u", `{"attachments":[{"type":"image","asset_id":"1"}]}`}},
			`[{"role":"user","content":[{"type":"text","text":"u"},{"type":"text","text":"` + noteUnresolved + `"}]}]`},
		{"image of a tool goes to the next user message", "", []m{{"assistant", "", callA + "}"}, {"tool", "r", `{"tool_call_id":"a","attachments":[{"type":"image","url":"https://x/y.png"}]}`}, {"user", "u", ""}},
			`[{"role":"assistant","content":null,` + sentA + `},{"role":"tool","content":"r","tool_call_id":"a"},{"role":"user","content":[{"type":"text","text":"u"},{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}]`},
		{"images of tools are shown within the loop", "", []m{{"user", "draw", ""}, {"assistant", "", callA + "}"}, {"tool", "r", `{"tool_call_id":"a","attachments":[{"type":"image","url":"https://x/y.png"}]}`}},
			`[{"role":"user","content":"draw"},{"role":"assistant","content":null,` + sentA + `},{"role":"tool","content":"r","tool_call_id":"a"},{"role":"user","content":[{"type":"text","text":"` + loquat.ToolImagesText + `"},{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}]`},
		{"and stay where they were shown", "", []m{{"assistant", "", callA + "}"}, {"tool", "r", `{"tool_call_id":"a","attachments":[{"type":"image","url":"https://x/y.png"}]}`}, {"assistant", "a", ""}, {"user", "u", ""}},
			`[{"role":"assistant","content":null,` + sentA + `},{"role":"tool","content":"r","tool_call_id":"a"},{"role":"user","content":[{"type":"text","text":"` + loquat.ToolImagesText + `"},{"type":"image_url","image_url":{"url":"https://x/y.png"}}]},{"role":"assistant","content":"a"},{"role":"user","content":"u"}]`},
		{"images of tools that are not allowed", `{"allow_image_attachment_base64":false}`, []m{{"assistant", "", callA + "}"}, {"tool", "r", `{"tool_call_id":"a","attachments":[{"type":"image","asset_id":"x"}]}`}},
			`[{"role":"assistant","content":null,` + sentA + `},{"role":"tool","content":"r","tool_call_id":"a"},{"role":"user","content":[{"type":"text","text":"` + loquat.ToolImagesText + `"},{"type":"text","text":"` + noteData + `"}]}]`},
		{"systems merged", `{"merge_system_messages":true}`, []m{{"system", "1", ""}, {"user", "u", ""}, {"system", "2", ""}},
			`[{"role":"system","content":"1\n\n2"},{"role":"user","content":"u"}]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var messages []loquat.Message
			for _, x := range tc.messages {
				messages = append(messages, loquat.Message{Role: x.role, Content: x.content, Metadata: parsed(x.metadata)})
			}
			body := sent(t, loquat.LLMRequest{ProviderID: "main", Config: configWith(tc.config), Messages: messages})
			if !providertest.SameJSON(body["messages"], json.RawMessage(tc.want)) {
				t.Errorf("got %s\nwant %s", body["messages"], tc.want)
			}
		})
	}
}

// For any messages of a session, strict backends accept the messages that are sent. Each
// call has one result directly after it, and no other message is a result. No assistant
// message is empty.
func TestHistoryIsValid(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		id := rapid.SampledFrom([]string{"a", "b", "c"})
		var messages []loquat.Message
		for range rapid.IntRange(0, 12).Draw(rt, "messages") {
			m := loquat.Message{
				Role:    rapid.SampledFrom([]string{"user", "assistant", "assistant", "tool", "tool", "system"}).Draw(rt, "role"),
				Content: rapid.SampledFrom([]string{"", "text"}).Draw(rt, "content"),
			}
			switch m.Role {
			case loquat.RoleAssistant:
				var calls []loquat.ToolCall
				for _, id := range rapid.SliceOfNDistinct(id, 0, 3, rapid.ID).Draw(rt, "calls") {
					calls = append(calls, loquat.ToolCall{ID: id, Name: "f", Arguments: "{}"})
				}
				if calls != nil {
					m.Metadata = loquat.Object{}.Set("tool_calls", calls)
				}
			case loquat.RoleTool:
				m.Metadata = loquat.Object{}.Set("tool_call_id", id.Draw(rt, "answers"))
			}
			if rapid.IntRange(0, 3).Draw(rt, "image") == 0 {
				m.Metadata = m.Metadata.Set("attachments", []map[string]string{{"type": "image", "url": "https://x/y.png"}})
			}
			messages = append(messages, m)
		}
		config := configWith(rapid.SampledFrom([]string{"", `{"merge_system_messages":true}`, `{"empty_content":"string"}`}).Draw(rt, "config"))
		body := sent(t, loquat.LLMRequest{ProviderID: "main", Config: config, Messages: messages})
		if fault := faultOf(body["messages"]); fault != "" {
			rt.Fatalf("%s in %s", fault, body["messages"])
		}
	})
}

// faultOf returns the reason for which a strict backend refuses messages, or "".
func faultOf(raw json.RawMessage) string {
	var messages []struct {
		Role       string
		Content    any
		ToolCallID string                `json:"tool_call_id"`
		ToolCalls  []struct{ ID string } `json:"tool_calls"`
	}
	if err := json.Unmarshal(raw, &messages); err != nil {
		return err.Error()
	}
	var open []string // calls that wait for their answer
	for i, m := range messages {
		_, isText := m.Content.(string)
		switch {
		case m.Role == "tool" && !isText:
			return fmt.Sprintf("message %d, of a tool, holds more than text", i)
		case m.Role == "tool" && !slices.Contains(open, m.ToolCallID):
			return fmt.Sprintf("message %d answers no call", i)
		case m.Role == "tool":
			open = slices.DeleteFunc(open, func(id string) bool { return id == m.ToolCallID })
			continue
		case len(open) > 0:
			return fmt.Sprintf("message %d comes before all calls are answered", i)
		case m.Content == nil && len(m.ToolCalls) == 0:
			return fmt.Sprintf("message %d has no content", i)
		case m.Role == "assistant" && m.Content == "" && len(m.ToolCalls) == 0:
			return fmt.Sprintf("message %d says nothing", i)
		}
		for _, call := range m.ToolCalls {
			open = append(open, call.ID)
		}
	}
	if len(open) > 0 {
		return "the last calls are not answered"
	}
	return ""
}

func TestReasoningEcho(t *testing.T) {
	message := func(meta string) loquat.Message {
		return loquat.Message{Role: "assistant", Content: "t", Metadata: parsed(callA + meta)}
	}
	user := loquat.Message{Role: "user", Content: "u"}
	from := `,"provider":"main","model":"m","reasoning_content":"hm","reasoning_details":[{"text":"hm"}]}`
	renamed := `,"provider":"main","model":"m-2026","requested_model":"m","reasoning":"hm"}`
	for _, tc := range []struct {
		name, echo string
		messages   []loquat.Message
		want       []string // the fields that go back
	}{
		{"in the loop", "auto", []loquat.Message{user, message(from)}, []string{"reasoning_content", "reasoning_details"}},
		{"the field it came from", "auto", []loquat.Message{user, message(renamed)}, []string{"reasoning"}},
		{"before the loop", "auto", []loquat.Message{message(from), user}, nil},
		{"another provider", "auto", []loquat.Message{user, message(strings.Replace(from, "main", "other", 1))}, nil},
		{"another model", "auto", []loquat.Message{user, message(strings.Replace(from, `"m"`, `"n"`, 1))}, nil},
		{"always", "always", []loquat.Message{message(strings.Replace(from, "main", "other", 1)), user}, []string{"reasoning_content", "reasoning_details"}},
		{"never", "never", []loquat.Message{user, message(from)}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			body := sent(t, loquat.LLMRequest{ProviderID: "main", Config: configWith(`{"reasoning_echo":"` + tc.echo + `"}`), Messages: tc.messages})
			var sent []map[string]json.RawMessage
			if err := json.Unmarshal(body["messages"], &sent); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range sent {
				for _, key := range sortedKeys(m) {
					if strings.HasPrefix(key, "reasoning") {
						got = append(got, key)
					}
				}
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("sent %q, want %q", got, tc.want)
			}
		})
	}
}

// The metadata of a reply must be sufficient to send its reasoning back.
func TestEchoOfOwnReply(t *testing.T) {
	c := reading{}
	stream := "data: {\"model\":\"m-2026\",\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\",\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n"
	if f := c.stream(strings.NewReader(stream), func(loquat.Chunk) bool { return true }); f != nil {
		t.Fatal(f)
	}
	r := c.collector.reply("main", "m")
	m := loquat.Message{Role: "assistant", Content: r.Content, Metadata: r.Metadata.Set("tool_calls", r.ToolCalls)}
	body := sent(t, loquat.LLMRequest{ProviderID: "main", Config: configWith(""), Messages: append(providertest.UserSays("hi"), m)})
	if !strings.Contains(string(body["messages"]), `"reasoning_content":"hm"`) {
		t.Errorf("sent %s", body["messages"])
	}
}

// A large image is not copied into the body.
func TestImagesAreNotCopied(t *testing.T) {
	image := `"data:image/png;base64,` + strings.Repeat("A", 1<<20) + `"`
	raw := json.RawMessage(`[{"type":"image","data_url":` + image + `}]`)
	messages := []loquat.Message{{Role: "user", Content: "u", Metadata: loquat.Object{"attachments": raw}}}
	s, err := readSettings(configWith(""))
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.encode(t.Context(), loquat.LLMRequest{Messages: messages}, nil)
	if err != nil {
		t.Fatal(err)
	}
	own := 0
	for _, p := range b.parts {
		if len(p.bytes) < 1<<20 {
			own += cap(p.bytes)
		}
	}
	if len(b.parts) != 3 || own > 4096 {
		t.Errorf("%d parts, %d bytes beside the image", len(b.parts), own)
	}
}

func TestSettings(t *testing.T) {
	for _, tc := range []struct{ set, want string }{
		{`{"timeout":"soon"}`, "timeout"},
		{`{"timeout":0}`, "timeout"},
		{`{"timeout":-1}`, "timeout"},
		{`{"model":""}`, "model"},
		{`{"base_url":"ftp://x"}`, "base_url"},
		{`{"retry_on_timeout":"1,x"}`, "retry_on_timeout"},
		{`{"retry_on_status":{"429":[1]}}`, "rate_limit_retry_delays_seconds"},
		{`{"stream_recovery":{"mode":"often"}}`, "stream_recovery.mode"},
		{`{"reasoning_echo":"off"}`, "reasoning_echo"},
	} {
		_, err := readSettings(configWith(tc.set))
		if loquat.CodeOf(err) != loquat.CodeInvalid || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.set, err)
		}
	}
	if s, err := readSettings(configWith(`{"timeout":null,"retry_on_status":null}`)); err != nil || s.timeout.Seconds() != 60 {
		t.Errorf("null is not absent: %v, %v", s.timeout, err)
	}
}

// The schema says what each key is for, and settings accept its defaults.
func TestSchema(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range New(Options{}).ConfigSchema() {
		if f.Doc == "" || seen[f.Key] {
			t.Errorf("%s is listed twice, or says nothing", f.Key)
		}
		seen[f.Key] = true
		if f.Default == nil || strings.Contains(f.Key, ".") {
			continue
		}
		if _, err := readSettings(providertest.Config(providertest.URL).Set(f.Key, f.Default)); err != nil {
			t.Errorf("the default of %s: %v", f.Key, err)
		}
	}
}
