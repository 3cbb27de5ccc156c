package mcphost

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/plugin"
	"loquat/internal/ui"
)

func object(t *testing.T, text string) loquat.Object {
	t.Helper()
	var o loquat.Object
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// with makes the fake's tool `answer` return a raw result.
func with(result string) string { return fmt.Sprintf(`{"with": %s}`, result) }

// A tool's answer is converted to the result for the model.
func TestResults(t *testing.T) {
	p, _ := startFake(t, "", nil)
	running(t, p)
	answer := findTool(t, p, "answer")
	for _, c := range []struct{ name, result, content, metadata, images, err string }{
		{name: "texts", result: `{"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}`, content: "a\nb"},
		{name: "error", result: `{"content": [{"type": "text", "text": "no"}], "isError": true}`, content: "no (error)"},
		{name: "image", result: `{"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]}`, images: "image/png:hi"},
		{name: "embedded", result: `{"content": [{"type": "resource", "resource": {"uri": "x:1", "text": "inside"}},
			{"type": "resource", "resource": {"uri": "x:2", "mimeType": "image/gif", "blob": "aGk="}}]}`, content: "inside", images: "image/gif:hi"},
		{name: "notes", result: `{"content": [{"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}, {"type": "resource_link", "name": "n", "uri": "x:3"},
			{"type": "resource", "resource": {"uri": "x:4", "blob": "aGk="}}, {"type": "smell"}]}`,
			content: "[audio, audio/wav, 2 bytes: not shown]\n[resource n: x:3]\n[resource x:4, of unknown type, 2 bytes: not shown]\n[\"smell\" content: not shown]"},
		{name: "structured alone", result: `{"structuredContent": {"n": 9007199254740993, "a": [1, 2]}}`, content: `{"n":9007199254740993,"a":[1,2]}`},
		{name: "structured and text", result: `{"content": [{"type": "text", "text": "t"}], "structuredContent": {"n": 1}}`, content: "t"},
		{name: "structured and image", result: `{"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}], "structuredContent": {"content": [{"type": "image", "data": "aGk="}]}}`, images: "image/png:hi"},
		{name: "structured and embedded image", result: `{"content": [{"type": "resource", "resource": {"uri": "x:2", "mimeType": "image/gif", "blob": "aGk="}}], "structuredContent": {"n": 1}}`, images: "image/gif:hi"},
		{name: "structured and audio", result: `{"content": [{"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}], "structuredContent": {"data": "aGk="}}`, content: "[audio, audio/wav, 2 bytes: not shown]"},
		{name: "structured and link", result: `{"content": [{"type": "resource_link", "name": "n", "uri": "x:3"}], "structuredContent": {"n": 1}}`, content: "[resource n: x:3]"},
		{name: "structured and empty text", result: `{"content": [{"type": "text", "text": ""}], "structuredContent": {"n": 1}}`},
		{name: "structured and blank text and image", result: `{"content": [{"type": "text", "text": " "}, {"type": "image", "data": "aGk=", "mimeType": "image/png"}], "structuredContent": {"n": 1}}`, content: " ", images: "image/png:hi"},
		{name: "structured error", result: `{"structuredContent": {"n": 1}, "isError": true}`, content: `{"n":1} (error)`},
		{name: "structured null", result: `{"structuredContent": null}`},
		{name: "display", result: `{"content": [{"type": "text", "text": "t"}], "_meta": {"display": {"type": "text", "content": "nice"}}}`, content: "t",
			metadata: `{"display":{"type":"text","content":"nice"}}`},
		{name: "no display", result: `{"content": [], "_meta": {"display": "nice"}}`},
		{name: "nothing", result: `{}`},
		{name: "nonsense", result: `{"content": 7}`, err: "its answer is not valid"},
		{name: "no object", result: `7`, err: "its answer is not valid"},
		{name: "question", result: `{"resultType": "input_required", "inputRequests": {"a": {"method": "elicitation/create"}}}`, err: "it asks for input"},
	} {
		t.Run(c.name, func(t *testing.T) {
			result, err := answer.Call(t.Context(), plugin.ToolCall{Arguments: json.RawMessage(with(c.result))})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), "plugin fake: "+c.err) {
					t.Errorf("error %v, want %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			content, images, metadata := result.Content, "", ""
			if result.IsError {
				content += " (error)"
			}
			for _, image := range result.Images {
				images += image.MediaType + ":" + string(image.Data)
			}
			if len(result.Metadata) > 0 {
				metadata = encoded(t, result.Metadata)
			}
			if content != c.content || images != c.images || metadata != c.metadata {
				t.Errorf("content %q, images %q, metadata %s", content, images, metadata)
			}
		})
	}
}

// UIElements waits briefly for a process that is starting, and not for one that failed.
func TestElementsOfAStartingProcess(t *testing.T) {
	for _, c := range []struct {
		how   string
		comes bool
	}{{"", true}, {"ignore discover", false}, {"no start", false}} {
		t.Run(c.how, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			p, _ := startFake(t, c.how, manifest{"ui": []string{"answer"}})
			elements, err := p.UIElements(t.Context(), ui.Input{})
			took := time.Since(began)
			switch {
			case c.comes && len(elements) == 1:
			case errors.Is(err, plugin.ErrDown) && (took >= startGrace || p.Status().Restarts > 0):
			default:
				t.Errorf("after %v it shows %v, %v", took, elements, err)
			}
		})
	}
}

// A ui tool gets the arguments of get_ui_elements, or none if its schema has no properties.
func TestElements(t *testing.T) {
	in := ui.Input{Config: object(t, `{"model": "m"}`), Models: []loquat.Model{{ID: "m1"}}, State: object(t, `{"n": 1}`)}
	for _, c := range []struct{ name, kind, tool, want string }{
		{"core", "feature", "answer", `{"config":{"model":"m"},"models":[{"id":"m1"}],"tags":[]}`},
		{"application", "application", "answer", `{"config":{"model":"m"},"models":[{"id":"m1"}],"state":{"n":1},"tags":[]}`},
		{"legacy", "application", "bare", `{}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, _ := startFake(t, "", manifest{"kind": c.kind, "ui": []string{c.tool}})
			running(t, p)
			elements, err := p.UIElements(t.Context(), in)
			if err != nil || len(elements) != 1 || string(elements[0]["arguments"]) != c.want {
				t.Errorf("elements %s, %v", encoded(t, elements), err)
			}
			for _, tool := range p.Tools() {
				if tool.Name() == c.tool {
					t.Error("a model is shown the tool")
				}
			}
			global, err := p.UIElements(t.Context(), ui.Input{})
			if want := `"config":null`; err != nil || c.tool == "answer" && !strings.Contains(encoded(t, global), want) {
				t.Errorf("the global form: %s, %v", encoded(t, global), err)
			}
			p.Stop()
			if elements, err := p.UIElements(t.Context(), in); !errors.Is(err, plugin.ErrDown) || elements != nil {
				t.Errorf("a process that does not run shows %v, %v", elements, err)
			}
		})
	}
	for text, want := range map[string]int{`[{"key": "a"}, {"key": "b"}]`: 2, `{"elements": []}`: 0, `{"elements": [{}]}`: 1, `{}`: -1, `"x"`: -1, `[1]`: -1, `null`: -1, `{"elements": null}`: -1, `{"elements": {}}`: -1, `[null]`: 1} {
		elements, err := readElements(json.RawMessage(text))
		if n := len(elements); (err != nil) != (want < 0) || err == nil && n != want {
			t.Errorf("%s are %d elements, %v", text, n, err)
		}
	}
}

// The error for an element that is not an object names its index and kind.
func TestNoElements(t *testing.T) {
	for text, want := range map[string]string{`[{}, "a"]`: "element #1 is a string; must be an object", `{"elements": [true]}`: "element #0 is a boolean; must", `[[]]`: "element #0 is a list; must", `[-1]`: "element #0 is a number; must"} {
		if _, err := readElements(json.RawMessage(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Actions get their arguments. Their answer is the result, and for an application plugin
// also the state.
func TestActions(t *testing.T) {
	feature, _ := startFake(t, "", manifest{"kind": "feature", "actions": []string{"answer", "crash"}})
	application, _ := startFake(t, "", manifest{"name": "app", "kind": "application", "actions": []string{"answer", "hang"}, "timeout_seconds": 5})
	running(t, feature)
	running(t, application)

	call := plugin.ActionCall{ActionID: "answer", SessionID: "s1", Params: object(t, `{"start": 1}`), Config: object(t, `{"model": "m"}`)}
	for p, want := range map[*Plugin]string{
		feature:     `{"config":{"model":"m"},"params":{"start":1},"session_id":"s1"}`,
		application: `{"config":{"model":"m"},"params":{"start":1},"session_id":"s1","state":{}}`,
	} {
		got, err := p.Act(t.Context(), call)
		if err != nil || !strings.Contains(string(got.Result), want) {
			t.Errorf("%s is called so: %s, %v", p.Name(), got.Result, err)
		}
	}
	for _, c := range []struct {
		plugin              *Plugin
		data, result, state string
	}{
		{feature, `{"a": 1}`, `{"a": 1}`, "null"},
		{feature, `[1]`, `[1]`, "null"},
		{feature, `"text"`, `"text"`, "null"},
		{feature, `{"result": 5}`, `5`, "null"},
		{feature, `{"result": 5, "state": {}}`, `{"result": 5, "state": {}}`, "null"},
		{application, `{"result": 5, "state": {"n": 2}}`, `5`, `{"n":2}`},
		{application, `{"state": {"n": 2}}`, ``, `{"n":2}`},
		{application, `{"result": 5, "more": 7}`, `{"result": 5, "more": 7}`, "null"},
	} {
		got, err := c.plugin.actionResult(json.RawMessage(c.data))
		if err != nil || string(got.Result) != c.result || encoded(t, got.State) != c.state {
			t.Errorf("%s of %s is %s with state %s", c.data, c.plugin.Name(), got.Result, encoded(t, got.State))
		}
	}

	for result, want := range map[string]string{
		`{"structuredContent": {"result": 5, "state": 7}}`:                "action answer of plugin app: its state is a number; state must be an object",
		`{"structuredContent": {"state": null}}`:                          "its state is null; state must be",
		`{"structuredContent": {"state": {}, "note": 1, "result": true}}`: `it answered "note" next to state; only result and state are allowed`,
	} {
		_, err := application.Act(t.Context(), plugin.ActionCall{ActionID: "answer", Params: object(t, with(result))})
		if loquat.CodeOf(err) != loquat.CodeBackendError || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", result, err)
		}
	}

	call.ActionID = "nothing"
	if _, err := feature.Act(t.Context(), call); loquat.CodeOf(err) != loquat.CodeNotFound {
		t.Errorf("an unknown action: %v", err)
	}
	call.ActionID = "crash"
	if _, err := feature.Act(t.Context(), call); loquat.CodeOf(err) != loquat.CodeBackendError || !strings.Contains(err.Error(), "ended meanwhile") {
		t.Errorf("an action that kills the process: %v", err)
	}
	application.Stop()
	call.ActionID = "hang"
	if _, err := application.Act(t.Context(), call); loquat.CodeOf(err) != loquat.CodeUnavailable {
		t.Errorf("an action of a process that does not run: %v", err)
	}
}

// Secrets are removed from an action's error before clients see it.
func TestActionError(t *testing.T) {
	a := &answer{}
	if err := json.Unmarshal([]byte(`{"content": [{"type": "text", "text": "no such range"}], "isError": true}`), a); err != nil {
		t.Fatal(err)
	}
	if _, err := a.data(); err == nil || err.Error() != "no such range" {
		t.Errorf("error %v", err)
	}
	for text, want := range map[string]string{
		`{"content": [{"type": "text", "text": "done"}]}`:                                  `"done"`,
		`{"content": [{"type": "text", "text": "so"}, {"type": "text", "text": "[1,2]"}]}`: `[1,2]`,
		`{"content": [], "structuredContent": {"b": 2, "a": 1}}`:                           `{"b": 2, "a": 1}`,
	} {
		a := &answer{}
		if err := json.Unmarshal([]byte(text), a); err != nil {
			t.Fatal(err)
		}
		if got, err := a.data(); err != nil || string(got) != want {
			t.Errorf("%s is %s, %v", text, got, err)
		}
	}
}

// A transform gets no secrets. Its answer is applied to the model's request; an invalid
// answer fails the request with the plugin's name.
func TestTransform(t *testing.T) {
	t.Parallel()
	p, _ := startFake(t, "", manifest{"kind": "feature", "transforms": []string{"answer"}})
	running(t, p)
	req := loquat.LLMRequest{SessionID: "s1", RequestID: "r1", Config: object(t, `{"api_key": "hunter2"}`), Redacted: object(t, `{"api_key": {"set": true}}`), Params: object(t, `{"extra": [{"token": "hunter2"}]}`), Messages: []loquat.Message{{Role: "user", Content: "hi"}}}
	err := p.EditRequest(t.Context(), &req)
	if err == nil || loquat.CodeOf(err) != loquat.CodeBackendError || !strings.Contains(err.Error(), `plugin fake could not edit the request to the model: answer: it did not answer {messages?, params?}`) {
		t.Errorf("an answer of another form: %v", err)
	}
	if s, err := p.running(); err != nil {
		t.Error(err)
	} else if a, err := s.callTool(t.Context(), p.manifest.timeout(), use{tool: "answer", arguments: transformArguments(&req)}); err != nil ||
		strings.Contains(string(a.Structured), "hunter2") || !strings.Contains(string(a.Structured), `"request_id":"r1"`) || !strings.Contains(string(a.Structured), `"content":"hi"`) {
		t.Errorf("it is called with %s, %v", a.Structured, err)
	}

	for _, c := range []struct{ data, given, err, messages, params string }{
		{data: `{}`, messages: `hi`, params: `{"top_p":1}`},
		{data: `{"params": {"seed": 1}}`, messages: `hi`, params: `{"seed":1}`},
		{data: `{"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "HI"}]}`, messages: `be brief HI`, params: `{"top_p":1}`},
		{data: `{"messages": []}`, params: `{"top_p":1}`},
		{data: `{"params": {"api_key": {"set": true}, "seed": 1}}`, given: `{"api_key": "hunter2"}`, messages: `hi`, params: `{"api_key":"hunter2","seed":1}`},
		{data: `{"messages": [{"role": "wizard", "content": ""}]}`, err: `its messages[0].role is "wizard"`},
		{data: `{"params": {"model": "x"}}`, err: "it set params.model"},
		{data: `{"params": {"Model": "x"}}`, err: "it set params.Model"},
		{data: `{"message": [], "messages": [{"role": "user", "contents": ""}]}`, err: "it did not answer {messages?, params?}: message is not a known key here; did you mean messages?; messages[0].contents is not a known key here; did you mean content?"},
		{data: `[]`, err: "is a list; must be an object"},
		{data: `{"params": {}, "params": {"a": 1}}`, err: "params is given twice"},
	} {
		req := loquat.LLMRequest{Messages: []loquat.Message{{Role: "user", Content: "hi"}}, Params: object(t, cmp.Or(c.given, `{"top_p": 1}`))}
		err := applyTransform(json.RawMessage(c.data), &req)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", c.data, err)
			}
			continue
		}
		var texts []string
		for _, m := range req.Messages {
			texts = append(texts, m.Content)
		}
		if got := strings.Join(texts, " "); err != nil || got != c.messages || encoded(t, req.Params) != c.params {
			t.Errorf("%s makes %q, %s, %v", c.data, got, encoded(t, req.Params), err)
		}
	}
	req.Params = loquat.Object{}.Set("with", text1(strings.Repeat("x", maxFrame)))
	err = p.EditRequest(t.Context(), &req)
	if err == nil || !strings.Contains(err.Error(), "answer: its answer has more than 16 MiB") || p.Status().Restarts > 0 {
		t.Errorf("an answer that is too long: %v; %+v", err, p.Status())
	}
	p.Stop()
	if err := p.EditRequest(t.Context(), &req); err == nil || !strings.Contains(err.Error(), "plugin fake could not edit") {
		t.Errorf("a process that does not run: %v", err)
	}
}

// A check calls what Loquat would call, and reports every fault with its place.
func TestCheck(t *testing.T) {
	report := func(how string, more manifest) (Report, string) {
		r := Check(t.Context(), writeManifest(t, how, more), Options{CacheDir: t.TempDir()})
		return r, strings.Join(r.Faults, "\n")
	}
	r, faults := report("odd tools", manifest{"kind": "feature", "ui": []string{"answer", "bare", "big", "gone"}, "transforms": []string{"count"}, "actions": []string{"crash"}})
	for _, want := range []string{`"a.b" is left out`, "big: it answered neither", "count: it did not answer {messages?, params?}"} {
		if !strings.Contains(faults, want) {
			t.Errorf("faults lack %q:\n%s", want, faults)
		}
	}
	if strings.Count(faults, "big: ") != 1 || strings.Count(faults, "gone") != 1 {
		t.Errorf("a fault is reported more than once:\n%s", faults)
	}
	if got, want := strings.Join(r.Elements, "; "), "config got (without type)"; got != want {
		t.Errorf("the elements are %s", got)
	}
	if got := strings.Join(r.Warnings, "\n"); strings.Count(got, "element got: has no label") != 2 || strings.Count(got, `element got: key "got" is used twice`) != 1 {
		t.Errorf("the warnings are\n%s", got)
	}
	uses := map[string]string{}
	for _, tool := range r.Tools {
		uses[tool.Name] = tool.Use
	}
	if uses["answer"] != "ui" || uses["crash"] != "actions" || uses["junk"] != "model" || uses["a.b"] != "" || r.Protocol != "2025-06-18" || !strings.HasPrefix(r.Command, "/") {
		t.Errorf("report %+v", r)
	}
	if r, faults := report("", manifest{"kind": "feature", "ui": []string{"bare"}}); faults != "" {
		t.Errorf("nothing is wrong with it: %s %+v", faults, r)
	}
	if _, faults := report("junk at start", nil); !strings.Contains(faults, `start: it printed "Server starting…" to its standard output`) {
		t.Errorf("faults %s", faults)
	}
	if _, faults := report("", manifest{"kind": 1, "comand": ""}); !strings.Contains(faults, "plugin.json comand") || !strings.Contains(faults, "plugin.json kind") {
		t.Errorf("faults %s", faults)
	}
	if _, faults := report("", manifest{"command": "./gone"}); !strings.Contains(faults, "start: start ") || !strings.Contains(faults, "gone") {
		t.Errorf("faults %s", faults)
	}
	var said []string
	dir := writeManifest(t, "no start", nil)
	if r := Check(t.Context(), dir, Options{CacheDir: t.TempDir(), OnLine: func(line string) { said = append(said, line) }}); len(said) == 0 || said[0] != "cannot find hunter2's settings" {
		t.Errorf("it said %q; %v", said, r.Faults)
	}
}

// The error for a program that cannot be started names the remedy.
func TestRemedies(t *testing.T) {
	t.Setenv("PATH", "/nowhere")
	dir := t.TempDir()
	for name, text := range map[string]string{"plain": "x = 1\n", "script": "#!/nowhere/python\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "script"), 0o700); err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]string{
		"pythn":    "there is no program pythn in Loquat's PATH, which is /nowhere",
		"./plain":  "permission denied; make it executable, or set command to its interpreter",
		"./script": "the file exists, but the interpreter that its first line names is missing",
		"./gone":   "there is no program " + filepath.Join(dir, "gone") + "; a command with a slash",
	} {
		_, err := Manifest{Command: program, Args: []string{"postgresql://user:hunter2@host/db"}}.command(dir, "", nil).start()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", program, err)
		}
	}
}

// A check warns about settings that no session can ever change.
func TestForbidden(t *testing.T) {
	var names []string
	for _, e := range []string{`{"key": "server"}`, `{"key": "api_key"}`, `{"key": "api_key", "secret": true}`, `{"key": "fine"}`,
		`{"key": "sly", "config_path": "provider"}`} {
		names = append(names, forbidden([]loquat.Object{object(t, e).Set("ui_type", "config")})...)
	}
	if got := strings.Join(names, "\n"); strings.Count(got, "\n") != 2 || !strings.Contains(got, "element server: ") || !strings.Contains(got, "element sly: ") {
		t.Errorf("the warnings are\n%s", got)
	}
	if got := strings.Join(once([]string{"a", "b"}, []string{"b", "c"}), "; "); got != "a (when called without a config); b; c (when called with a config)" {
		t.Errorf("the warning is %s", got)
	}
}
