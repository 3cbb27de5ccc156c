package backend

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/sse"
)

// start serves a Backend on a free port until the test ends.
func start(t *testing.T, opts Options) string {
	t.Helper()
	b, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(b)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		srv.Close()
	})
	return srv.URL
}

// requestBody returns a request with one user message and further members.
func requestBody(model, members string) string {
	return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"Hello out there"}]%s}`, model, members)
}

func post(t *testing.T, url, body string, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// postScript posts a streaming request with a script and reads the whole answer.
func postScript(t *testing.T, url, script string) (resp *http.Response, body string, err error) {
	t.Helper()
	resp = post(t, url, requestBody("demo", `,"stream":true,"loquat_script":`+script))
	data, err := io.ReadAll(resp.Body)
	return resp, string(data), err
}

// reply is a reply as a client sees it.
type reply struct {
	role, text, reasoning, finish string
	calls                         []call
	usage                         map[string]any
	chunks                        int
	done                          bool
}

type wireMessage struct {
	Role      string
	Content   *string
	Reasoning string `json:"reasoning_content"`
	ToolCalls []struct {
		Index    int
		ID       string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

type wireAnswer struct {
	ID, Object, Model string
	Created           int64
	Choices           []struct {
		Delta, Message wireMessage
		FinishReason   *string `json:"finish_reason"`
	}
	Usage map[string]any
}

func (r *reply) add(t *testing.T, data []byte) {
	t.Helper()
	var a wireAnswer
	if err := json.Unmarshal(data, &a); err != nil {
		t.Fatalf("unreadable chunk %q: %v", data, err)
	}
	if a.ID == "" || a.Model == "" || a.Created == 0 || !strings.HasPrefix(a.Object, "chat.completion") {
		t.Errorf("chunk lacks id, model, created or object: %s", data)
	}
	if a.Usage != nil {
		r.usage = a.Usage
	}
	for _, c := range a.Choices {
		m := c.Delta
		if a.Object == "chat.completion" {
			m = c.Message
		}
		r.role += m.Role
		if m.Content != nil {
			r.text += *m.Content
		}
		r.reasoning += m.Reasoning
		for _, d := range m.ToolCalls {
			for len(r.calls) <= d.Index {
				r.calls = append(r.calls, call{})
			}
			got := &r.calls[d.Index]
			got.id += d.ID
			got.name += d.Function.Name
			got.arguments += d.Function.Arguments
		}
		if c.FinishReason != nil {
			r.finish += *c.FinishReason
		}
	}
	r.chunks++
}

func readStream(t *testing.T, body io.Reader) reply {
	t.Helper()
	var r reply
	for e, err := range sse.Events(body, 1<<20) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case string(e.Data) == "[DONE]":
			r.done = true
		case e.Kind == sse.Message:
			r.add(t, e.Data)
		}
	}
	return r
}

func readWhole(t *testing.T, resp *http.Response) reply {
	t.Helper()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var r reply
	r.add(t, data)
	return r
}

func TestBuiltInModels(t *testing.T) {
	url := start(t, Options{Script: []byte(`{"rate":0}`)})
	const weather = `,"tools":[{"type":"function","function":{"name":"clock","parameters":{}}},` +
		`{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":` +
		`{"city":{"type":"string"},"days":{"type":"integer","minimum":2}},"required":["city","days"]}}}],` +
		`"tool_choice":{"type":"function","function":{"name":"weather"}}`
	tests := []struct {
		model, members       string
		text, reasoning      string // must be contained in the reply
		finish, callName, cs string
	}{
		{model: "demo", text: "> Hello out there", finish: "stop"},
		{model: "some-unknown-model", text: "I am Loquat's scripted backend", finish: "stop"},
		{model: "demo-reasoning", text: "Hello out there", reasoning: "The user wrote 3 words", finish: "stop"},
		{model: "demo-tools", text: "this request offers none", finish: "stop"},
		{model: "demo-tools", members: weather, text: "weather", finish: "tool_calls", callName: "weather", cs: `{"city":"Paris","days":2}`},
		{model: "demo-tools", members: `,"tool_choice":"none","tools":[{"function":{"name":"clock"}}]`, text: "offers none that I may call", finish: "stop"},
		{model: "echo", text: "Hello out there", finish: "stop"},
		{model: "lorem", text: "Lorem ipsum dolor sit amet, ", finish: "stop"},
	}
	for _, tt := range tests {
		t.Run(tt.model, func(t *testing.T) {
			members := tt.members + `,"stream_options":{"include_usage":true}`
			resp := post(t, url, requestBody(tt.model, members+`,"stream":true`))
			if got := resp.Header.Get("Content-Type"); got != contentSSE {
				t.Errorf("content type %q", got)
			}
			streamed := readStream(t, resp.Body)
			whole := readWhole(t, post(t, url, requestBody(tt.model, tt.members)))
			if streamed.text != whole.text || streamed.reasoning != whole.reasoning || !slices.Equal(streamed.calls, whole.calls) {
				t.Errorf("streamed and whole differ:\n%+v\n%+v", streamed, whole)
			}
			if fmt.Sprint(streamed.usage) != fmt.Sprint(whole.usage) || streamed.usage["total_tokens"] == nil {
				t.Errorf("usage: streamed %v, whole %v", streamed.usage, whole.usage)
			}
			if !streamed.done || streamed.role != "assistant" || streamed.finish != tt.finish || whole.finish != tt.finish {
				t.Errorf("done %v, role %q, finish %q and %q", streamed.done, streamed.role, streamed.finish, whole.finish)
			}
			if !strings.Contains(streamed.text, tt.text) || !strings.Contains(streamed.reasoning, tt.reasoning) {
				t.Errorf("text %q, reasoning %q", streamed.text, streamed.reasoning)
			}
			if tt.callName == "" && len(streamed.calls) > 0 || tt.callName != "" &&
				(len(streamed.calls) != 1 || streamed.calls[0].name != tt.callName || streamed.calls[0].arguments != tt.cs) {
				t.Errorf("calls %+v", streamed.calls)
			}
		})
	}
}

func TestUsageOnlyWhenAsked(t *testing.T) {
	url := start(t, Options{})
	for _, script := range []string{`{"text":"a"}`, `{"text":"a","no_usage":true}`} {
		resp, body, err := postScript(t, url, script)
		if err != nil || resp.StatusCode != 200 || strings.Contains(body, "usage") {
			t.Errorf("%s: %v %s", script, err, body)
		}
	}
}

func TestToolResultsGetTheFixedText(t *testing.T) {
	conversation := `{"model":"demo-tools","stream":true,"loquat_script":%s,"messages":[{"role":"user","content":"go"},` +
		`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
		`{"role":"tool","tool_call_id":"c","content":"42"}%s]}`
	// The images of tools follow their results as a user message.
	images := `,{"role":"user","content":[{"type":"text","text":"` + loquat.ToolImagesText + `"},{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}`
	url := start(t, Options{Script: []byte(`{"rate":0}`)})
	calls := `{"tool_calls":[{"name":"f","arguments":{"a":1}}]}`
	for _, script := range []string{"null", calls, `{"text":"other"}`} {
		for _, end := range []string{"", images} {
			got := readStream(t, post(t, url, fmt.Sprintf(conversation, script, end)).Body)
			if got.text != ToolResultsText || got.finish != "stop" || len(got.calls) != 0 {
				t.Errorf("%s: %+v", script, got)
			}
		}
	}
	for _, end := range []string{`,{"role":"user","content":"again"}`, images + `,{"role":"user","content":"again"}`} {
		if got := readStream(t, post(t, url, fmt.Sprintf(conversation, calls, end)).Body); len(got.calls) != 1 {
			t.Errorf("after a new message of the user: %+v", got)
		}
	}
	got := readStream(t, post(t, url, fmt.Sprintf(conversation, `{"repeat_tool_calls":true,"tool_calls":[{"name":"f","arguments":"{bad"}]}`, "")).Body)
	if len(got.calls) != 1 || got.calls[0].arguments != "{bad" || got.role != "assistant" {
		t.Errorf("repeated: %+v", got)
	}
}

func TestModels(t *testing.T) {
	url := start(t, Options{})
	var list struct {
		Object string
		Data   []model
	}
	get(t, url+"/v1/models", http.StatusOK, &list)
	if list.Object != "list" || len(list.Data) != len(builtinModels) || list.Data[0].ID != "demo" || list.Data[0].Name == "" {
		t.Errorf("%+v", list)
	}
	var one model
	get(t, url+"/v1/models/echo", http.StatusOK, &one)
	if one.ID != "echo" || one.Object != "model" {
		t.Errorf("%+v", one)
	}
	get(t, url+"/v1/models/nobody", http.StatusNotFound, nil)
}

func get(t *testing.T, url string, status int, into any) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != status {
		t.Fatalf("%s: status %d", url, resp.StatusCode)
	}
	if into != nil {
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRefusals(t *testing.T) {
	url := start(t, Options{})
	tests := []struct {
		method, path, body string
		status             int
		code, says         string
	}{
		{"POST", "/chat/completions", requestBody("demo", ""), 404, "unknown_url", "/v1"},
		{"POST", "/", "", 404, "unknown_url", "base URL"},
		{"GET", "/v1/chat/completions", "", 405, "method_not_allowed", "use POST"},
		{"DELETE", "/v1/models", "", 405, "method_not_allowed", "use GET"},
		{"POST", "/v1/chat/completions", "{", 400, "invalid_json", "parse"},
		{"POST", "/v1/chat/completions", `{"messages":[{"role":"user"}]}`, 400, "missing_model", "/v1/models"},
		{"POST", "/v1/chat/completions", `{"model":"demo","messages":[]}`, 400, "empty_array", "at least one"},
		{"POST", "/v1/chat/completions", requestBody("demo", `,"loquat_script":{"sleep":1}`), 400, "invalid_script", `sleep is not a known key here`},
		{"POST", "/v1/chat/completions", requestBody("demo", `,"loquat_script":[1]`), 400, "invalid_script", "object"},
		{"POST", "/v1/chat/completions", requestBody("demo", `,"loquat_script":{"chunks":-1}`), 400, "invalid_script", "chunks: -1"},
		{"POST", "/v1/chat/completions", requestBody("demo", `,"loquat_script":{"drop":"softly"}`), 400, "invalid_script", "reset, short and clean"},
		{"POST", "/v1/chat/completions", requestBody("demo", `,"loquat_script":{"reframe":["upside-down"]}`), 400, "invalid_script", "crlf"},
		{"POST", "/v1/chat/completions", requestBody("demo", `,"loquat_script":{"attempts":[{"attempts":[]}]}`), 400, "invalid_script", "attempts[0].attempts"},
		{"POST", "/v1/chat/completions", requestBody("demo", `,"loquat_script":{"chunks":100000000,"chunk_bytes":1000}`), 400, "invalid_script", "without streaming"},
		{"POST", "/v1/chat/completions", requestBody("demo-error", ""), 503, "overloaded", "demo-error"},
	}
	for _, tt := range tests {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, url+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct{ Error apiError }
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			t.Fatalf("%s %s: %v", tt.method, tt.path, err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.status || answer.Error.Code != tt.code || !strings.Contains(answer.Error.Message, tt.says) {
			t.Errorf("%s %s %s: %d %+v", tt.method, tt.path, tt.body, resp.StatusCode, answer.Error)
		}
	}
}

func TestBodyTooLarge(t *testing.T) {
	b, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", io.LimitReader(zeros{}, maxBody+1)))
	if w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), "request_too_large") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// TestScriptContent tests the directives for the content of a reply.
func TestScriptContent(t *testing.T) {
	url := start(t, Options{})
	tests := []struct {
		name, script string
		want         reply
	}{
		{"text", `{"text":"one two"}`, reply{text: "one two", finish: "stop", chunks: 3, done: true}},
		{"empty text", `{"text":""}`, reply{finish: "stop", chunks: 2, done: true}},
		{"text in chunks", `{"text":"añb","chunks":2}`, reply{text: "añb", finish: "stop", chunks: 3, done: true}},
		{"chunk_bytes", `{"text":"abcde","chunk_bytes":2}`, reply{text: "abcde", finish: "stop", chunks: 4, done: true}},
		{"filler", `{"chunks":3}`, reply{text: "Lorem ipsum dolor ", finish: "stop", chunks: 4, done: true}},
		{"filler bytes", `{"chunks":2,"chunk_bytes":7}`, reply{text: "Lorem ipsum do", finish: "stop", chunks: 3, done: true}},
		{"reasoning", `{"reasoning":"so so","text":"x"}`, reply{text: "x", reasoning: "so so", finish: "stop", chunks: 4, done: true}},
		{"tool calls", `{"tool_calls":[{"id":"a","name":"f","arguments":{"x":1}},{"name":"g","arguments":"not json"}]}`,
			reply{calls: []call{{"a", "f", `{"x":1}`}, {"call_1_2", "g", "not json"}}, finish: "tool_calls", chunks: 5, done: true}},
		{"no_done", `{"text":"x","no_done":true}`, reply{text: "x", finish: "stop", chunks: 2}},
		{"no_finish_reason", `{"text":"x","no_finish_reason":true}`, reply{text: "x", chunks: 1, done: true}},
		{"finish_reason", `{"text":"x","finish_reason":"length"}`, reply{text: "x", finish: "length", chunks: 2, done: true}},
		{"usage", `{"text":"x","usage":{"total_tokens":9}}`,
			reply{text: "x", finish: "stop", chunks: 3, done: true, usage: map[string]any{"total_tokens": 9.0}}},
		{"comments", `{"text":"x y","comment_every":1}`, reply{text: "x y", finish: "stop", chunks: 3, done: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.role = "assistant"
			resp := post(t, url, requestBody("demo", `,"stream":true`), scriptHeader, tt.script)
			if got := readStream(t, resp.Body); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestScriptReasoningFieldAndContentType(t *testing.T) {
	url := start(t, Options{})
	resp, body, err := postScript(t, url, `{"reasoning":"why","reasoning_field":"reasoning","content_type":"application/octet-stream"}`)
	if err != nil || !strings.Contains(body, `"reasoning":"why"`) || resp.Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("%v %v %s", err, resp.Header, body)
	}
}

// Filler is formatted once per cycle. Streamed and not streamed, all of it arrives.
func TestLongFiller(t *testing.T) {
	url := start(t, Options{})
	script := `,"loquat_script":{"chunks":20000,"chunk_bytes":11}`
	streamed := readStream(t, post(t, url, requestBody("demo", script+`,"stream":true`)).Body)
	whole := readWhole(t, post(t, url, requestBody("demo", script)))
	if len(streamed.text) != 220_000 || streamed.text != whole.text {
		t.Errorf("%d bytes streamed, %d whole", len(streamed.text), len(whole.text))
	}
}

// Directives in the header win over those in the body, which win over the server's.
func TestScriptLayers(t *testing.T) {
	url := start(t, Options{Script: []byte(`{"text":"server","finish_reason":"a"}`)})
	got := readStream(t, post(t, url, requestBody("demo", `,"stream":true,"loquat_script":{"text":"body","no_done":true}`),
		scriptHeader, `{"text":"header","finish_reason":null}`).Body)
	if got.text != "header" || got.finish != "stop" || got.done {
		t.Errorf("%+v", got)
	}
}

func TestScriptFaults(t *testing.T) {
	url := start(t, Options{})
	tests := []struct {
		name, script string
		check        func(t *testing.T, resp *http.Response, body string, err error)
	}{
		{"status", `{"status":429,"retry_after":2}`, func(t *testing.T, resp *http.Response, body string, err error) {
			if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "2" || !strings.Contains(body, `{"error":{`) {
				t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
			}
		}},
		{"status with text", `{"status":502,"body":"<html>bad</html>","retry_after":"Wed, 21 Oct 2026 07:28:00 GMT"}`,
			func(t *testing.T, resp *http.Response, body string, err error) {
				if resp.StatusCode != 502 || body != "<html>bad</html>" || resp.Header.Get("Retry-After") != "Wed, 21 Oct 2026 07:28:00 GMT" {
					t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
				}
			}},
		{"status with JSON", `{"status":400,"body":{"detail":"no"}}`, func(t *testing.T, resp *http.Response, body string, err error) {
			if resp.StatusCode != 400 || body != `{"detail":"no"}` {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
		}},
		{"reset", `{"chunks":9,"drop_after":2}`, func(t *testing.T, resp *http.Response, body string, err error) {
			if !errors.Is(err, syscall.ECONNRESET) || strings.Count(body, "data:") != 2 {
				t.Errorf("%v %s", err, body)
			}
		}},
		{"short", `{"chunks":9,"drop_after":3,"drop":"short"}`, func(t *testing.T, resp *http.Response, body string, err error) {
			if !errors.Is(err, io.ErrUnexpectedEOF) || strings.Count(body, "data:") != 3 {
				t.Errorf("%v %s", err, body)
			}
		}},
		{"clean", `{"chunks":9,"drop_after":4,"drop":"clean"}`, func(t *testing.T, resp *http.Response, body string, err error) {
			if err != nil || strings.Count(body, "data:") != 4 || strings.Contains(body, "[DONE]") {
				t.Errorf("%v %s", err, body)
			}
		}},
		{"drop beyond the end", `{"text":"x","drop_after":99}`, func(t *testing.T, resp *http.Response, body string, err error) {
			if err != nil || !strings.HasSuffix(body, "data: [DONE]\n\n") {
				t.Errorf("%v %s", err, body)
			}
		}},
		{"error", `{"chunks":9,"error_after":1}`, func(t *testing.T, resp *http.Response, body string, err error) {
			if err != nil || strings.Count(body, "data:") != 2 || !strings.Contains(body, `data: {"error":{`) {
				t.Errorf("%v %s", err, body)
			}
		}},
		{"malformed", `{"chunks":3,"malformed_after":1}`, func(t *testing.T, resp *http.Response, body string, err error) {
			if err != nil || strings.Count(body, "data:") != 3+1+2 || !strings.Contains(body, "\"brok\n\n") {
				t.Errorf("%v %s", err, body)
			}
		}},
		{"truncated UTF-8", `{"text":"caf","truncate_utf8":true}`, func(t *testing.T, resp *http.Response, body string, err error) {
			if err != nil || !strings.HasSuffix(body, `"content":"`+"\xC3") {
				t.Errorf("%v %q", err, body)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body, err := postScript(t, url, tt.script)
			tt.check(t, resp, body, err)
		})
	}
}

func TestDropBeforeHeaders(t *testing.T) {
	url := start(t, Options{})
	resp, err := http.Post(url+"/v1/chat/completions", "application/json",
		strings.NewReader(requestBody("demo", `,"loquat_script":{"drop_after":-1}`)))
	if err == nil {
		resp.Body.Close()
		t.Fatal("the backend answered")
	}
}

func TestFaultsOfWholeAnswers(t *testing.T) {
	url := start(t, Options{})
	for script, want := range map[string]error{
		`{"text":"abc","drop_after":1,"drop":"short"}`: io.ErrUnexpectedEOF,
		`{"text":"abc","drop_after":1,"drop":"clean"}`: nil,
		`{"text":"abc","malformed_after":1}`:           nil,
		`{"text":"abc","truncate_utf8":true}`:          nil,
	} {
		resp := post(t, url, requestBody("demo", `,"loquat_script":`+script))
		body, err := io.ReadAll(resp.Body)
		if !errors.Is(err, want) || len(body) == 0 || json.Valid(body) {
			t.Errorf("%s: %v %s", script, err, body)
		}
	}
}

func TestAttempts(t *testing.T) {
	url := start(t, Options{})
	statuses := func(script string, n int) (got []int) {
		for range n {
			resp, _, _ := postScript(t, url, script)
			got = append(got, resp.StatusCode)
		}
		return got
	}
	sequence := `{"id":"a","text":"ok","attempts":[{"status":500},{"status":503},{}]}`
	if got := statuses(sequence, 4); !slices.Equal(got, []int{500, 503, 200, 200}) {
		t.Errorf("sequence: %v", got)
	}
	if got := statuses(strings.Replace(sequence, `"a"`, `"b"`, 1), 1); !slices.Equal(got, []int{500}) {
		t.Errorf("another id: %v", got)
	}
	if got := statuses(`{"status":429,"fail_times":2}`, 3); !slices.Equal(got, []int{429, 429, 200}) {
		t.Errorf("fail_times: %v", got)
	}
	if got := statuses(`{"id":"c","status":500,"attempts":[{},{"status":null,"text":"x"}]}`, 3); !slices.Equal(got, []int{500, 200, 200}) {
		t.Errorf("null does not remove a directive: %v", got)
	}
	entries := requests(t, url)
	if first := entries[0]; first.Key != "a" || first.Attempt != 1 || entries[2].Attempt != 3 || first.Status != 500 {
		t.Errorf("%+v", entries[:3])
	}
}

func TestParseFaults(t *testing.T) {
	tests := []struct {
		faults []string
		want   string
		err    string
	}{
		{[]string{"status=503,times=2"}, `{"attempts":[{"status":503},{"status":503},{}]}`, ""},
		{[]string{"drop_after=5,drop=short,times=1", "status=500"}, `{"attempts":[{"drop":"short","drop_after":5},{"status":500}]}`, ""},
		{[]string{"status=500", "status=503"}, "", "without times"},
		{[]string{"status"}, "", "directive=value"},
		{[]string{"status=9"}, "", "200 to 599"},
		{[]string{"stat=500"}, "", `stat is not a known key here; did you mean status?`},
		{[]string{"status=500,times=0"}, "", "1 to 1000"},
		{[]string{"times=2"}, "", "no directive"},
	}
	for _, tt := range tests {
		got, err := ParseFaults(tt.faults)
		if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) || tt.err == "" && (err != nil || string(got) != tt.want) {
			t.Errorf("%q: %s, %v", tt.faults, got, err)
		}
	}
}

func requests(t *testing.T, url string) []Entry {
	t.Helper()
	var list struct{ Requests []Entry }
	get(t, url+"/_requests", http.StatusOK, &list)
	return list.Requests
}

// The journal shows that the client closed the connection, whether during a pause, a stall,
// a delay or an unpaced stream.
func TestClientCloseIsRecorded(t *testing.T) {
	url := start(t, Options{})
	for i, script := range []string{
		`{"chunks":1000,"rate":2}`,
		`{"chunks":10,"stall_after":1}`,
		`{"chunks":10,"first_byte_delay_ms":60000}`,
		`{"chunks":100000000,"chunk_bytes":1000}`,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/chat/completions",
			strings.NewReader(requestBody("demo", `,"stream":true,"loquat_script":`+script)))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if e := requests(t, url)[i]; e.Ended != nil {
			t.Errorf("%s: ended before the cancel: %+v", script, e)
		}
		cancel()
		resp.Body.Close()
		cancelled := time.Now()
		e := requests(t, url)[i]
		for e.Ended == nil && time.Since(cancelled) < 5*time.Second {
			time.Sleep(time.Millisecond)
			e = requests(t, url)[i]
		}
		if e.Ended == nil || e.End != EndClientClosed || e.Ended.Before(e.Started) {
			t.Errorf("%s: %+v", script, e)
		}
	}
}

func TestJournalIsBounded(t *testing.T) {
	b, err := New(Options{Script: []byte(`{"text":"x"}`)})
	if err != nil {
		t.Fatal(err)
	}
	for range maxJournal + 5 {
		b.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(requestBody("demo", ""))))
	}
	list := b.journal.list()
	if len(list) != maxJournal || list[0].N != 6 || list[maxJournal-1].End != EndCompleted {
		t.Errorf("%d entries, first %+v", len(list), list[0])
	}
}

func TestCounterForgetsLeastRecentKey(t *testing.T) {
	var c counter
	c.next("old")
	c.next("kept")
	c.next("old")
	for i := range maxAttempts - 1 {
		c.next(fmt.Sprint(i))
	}
	if old, kept := c.next("old"), c.next("kept"); old != 2 || kept != 0 || len(c.seen) != maxAttempts || len(c.order) != maxAttempts {
		t.Errorf("old %d, kept %d, %d seen", old, kept, len(c.seen))
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	b, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx, ln) }()
	resp := post(t, "http://"+ln.Addr().String(), requestBody("demo", `,"stream":true,"loquat_script":{"chunks":9,"stall_after":1}`))
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	io.Copy(io.Discard, resp.Body) // ends, with or without an error
	http.DefaultClient.CloseIdleConnections()
}

func TestExampleArguments(t *testing.T) {
	tests := []struct{ schema, want string }{
		{``, `{}`},
		{`{"type":"object"}`, `{}`},
		{`{"type":"object","properties":{"query":{"type":"string"}}}`, `{"query":"find it"}`},
		{`{"type":"object","properties":{"unit":{"enum":["c","f"]},"n":{"type":"number","maximum":0.5}}}`, `{"n":0.5,"unit":"c"}`},
		{`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"boolean"}},"required":["b"]}`, `{"b":true}`},
		{`{"type":"object","properties":{"l":{"type":"array","minItems":2,"items":{"type":"integer","minimum":3}}}}`, `{"l":[3,3]}`},
		{`{"type":"object","properties":{"o":{"$ref":"#/$defs/p"}},"$defs":{"p":{"type":"object","properties":{"x":{"const":7}}}}}`, `{"o":{"x":7}}`},
		{`{"type":"object","properties":{"s":{"type":["string","null"],"maxLength":4}}}`, `{"s":"find"}`},
		{`{"type":"object","properties":{"d":{"type":"string","format":"date"},"e":{"anyOf":[{"type":"null"},{"type":"string"}]}}}`, `{"d":"2026-01-31","e":null}`},
		{`{"allOf":[{"type":"object","properties":{"a":{"default":1}}},{"type":"object","properties":{"b":{"examples":["z"]}}}]}`, `{"a":1,"b":"z"}`},
		{`{"type":"array"}`, `{}`},
		{`not json`, `{}`},
	}
	for _, tt := range tests {
		if got := exampleArguments([]byte(tt.schema), "find it"); string(got) != tt.want {
			t.Errorf("%s: %s, want %s", tt.schema, got, tt.want)
		}
	}
	// A recursive schema ends at maxSchemaDepth.
	got := exampleArguments([]byte(`{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}}}}}`), "")
	if !json.Valid(got) || !bytes.Contains(got, []byte(`{"n":{"n":`)) {
		t.Errorf("%s", got)
	}
}

// A body that the script has compressed is whole.
func TestScriptContentEncoding(t *testing.T) {
	url := start(t, Options{})
	get := func(script string) (string, http.Header) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", url+"/v1/chat/completions", strings.NewReader(`{"model": "echo", "stream": true, "messages": [{"role": "user", "content": "hi there"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", "identity")
		req.Header.Set(scriptHeader, script)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(data), resp.Header
	}
	for coding, open := range map[string]func(io.Reader) (io.Reader, error){
		"gzip":    func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
		"deflate": func(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) },
		"br":      func(r io.Reader) (io.Reader, error) { return r, nil },
	} {
		data, header := get(`{"rate": 0, "content_encoding": "` + coding + `"}`)
		r, err := open(strings.NewReader(data))
		if err != nil {
			t.Fatalf("%s: %v", coding, err)
		}
		if got, err := io.ReadAll(r); err != nil || !strings.Contains(string(got), `"content":"there"`) || !strings.HasSuffix(string(got), "data: [DONE]\n\n") || header.Get("Content-Encoding") != coding {
			t.Errorf("%s: %q, %v", coding, got, err)
		}
	}
}
