package openai_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
)

// openResponses validates answers and events by the schemas of Open Responses.
type openResponses struct {
	document map[string]any
	resolved map[string]*jsonschema.Resolved
}

// readOpenResponses reads the document from the shared folder.
func readOpenResponses(t *testing.T) *openResponses {
	t.Helper()
	dir := os.Getenv("LOQUAT_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared")
	}
	raw, err := os.ReadFile(filepath.Join(dir, "openresponses", "openapi.json"))
	if err != nil {
		t.Skipf("no document of Open Responses at %s (LOQUAT_SHARED names another place)", dir)
	}
	o := &openResponses{resolved: map[string]*jsonschema.Resolved{}}
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(raw), "#/components/schemas/", "#/$defs/")), &o.document); err != nil {
		t.Fatal(err)
	}
	// The document allows only null as the schema of a format, which is a fault: programs send objects.
	schemas := o.document["components"].(map[string]any)["schemas"].(map[string]any)
	schemas["JsonSchemaResponseFormat"].(map[string]any)["properties"].(map[string]any)["schema"] = map[string]any{}
	return o
}

// check fails if a value does not have a schema.
func (o *openResponses) check(t *testing.T, name string, value map[string]any) {
	t.Helper()
	if o.resolved[name] == nil {
		schemas := o.document["components"].(map[string]any)["schemas"]
		raw := binary.MustJSON(t, map[string]any{"$ref": "#/$defs/" + name, "$defs": schemas})
		var s jsonschema.Schema
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		r, err := s.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		o.resolved[name] = r
	}
	if err := o.resolved[name].Validate(value); err != nil {
		t.Errorf("%s: %v\n%s", name, err, binary.MustJSON(t, value))
	}
}

// schemaOfEvent returns the schema of the events of a type.
func (o *openResponses) schemaOfEvent(t *testing.T, kind string) string {
	t.Helper()
	for name, schema := range o.document["components"].(map[string]any)["schemas"].(map[string]any) {
		properties, _ := schema.(map[string]any)["properties"].(map[string]any)
		typed, _ := properties["type"].(map[string]any)
		if values, _ := typed["enum"].([]any); len(values) == 1 && values[0] == kind && strings.HasSuffix(name, "StreamingEvent") {
			return name
		}
	}
	t.Errorf("Open Responses has no event %s", kind)
	return "ErrorStreamingEvent"
}

// callAPI makes a call and returns the answer.
func callAPI(t *testing.T, method, url, body string) *http.Response {
	t.Helper()
	return call(t, fullToken, method, url, body)
}

// call makes a call with a token and returns the answer.
func call(t *testing.T, token, method, url, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// answer makes a call, checks its status and returns the JSON of its answer.
func answer(t *testing.T, status int, method, url, body string) map[string]any {
	t.Helper()
	resp := callAPI(t, method, url, body)
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil || resp.StatusCode != status {
		t.Fatalf("%s %s with %.200s: %d %s, want %d", method, url, body, resp.StatusCode, raw, status)
	}
	return out
}

// events reads the events of a stream until its end, until most are there, or until the connection breaks.
func events(t *testing.T, resp *http.Response, most int) (out []map[string]any, done bool) {
	t.Helper()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for len(out) < most && lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if data == "[DONE]" {
			return out, true
		}
		if !ok {
			continue
		}
		var e map[string]any
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		out = append(out, e)
	}
	return out, false
}

// outputText returns the text of the messages of a response, and the types of its items.
func outputText(response map[string]any) (text string, types []string) {
	for _, item := range response["output"].([]any) {
		o := item.(map[string]any)
		types = append(types, o["type"].(string))
		parts, _ := o["content"].([]any)
		for _, part := range parts {
			if p := part.(map[string]any); p["type"] == "output_text" {
				text += p["text"].(string)
			}
		}
	}
	return text, types
}

const (
	weatherTool = `{"type": "function", "name": "weather", "description": "Weather of a city", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}`
	pixel       = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)

// complianceCases are the cases of Open Responses, with a model each.
var complianceCases = map[string]string{
	"basic-response":       `{"model": "default", "input": [{"type": "message", "role": "user", "content": "Say hello in exactly 3 words."}]}`,
	"streaming-response":   `{"model": "default", "stream": true, "input": [{"type": "message", "role": "user", "content": "Count from 1 to 5."}]}`,
	"reasoning":            `{"model": "thinker", "stream": true, "input": "Think.", "reasoning": {"effort": "high"}}`,
	"system-prompt":        `{"model": "default", "input": [{"type": "message", "role": "system", "content": "You are a pirate."}, {"type": "message", "role": "user", "content": "Say hello."}]}`,
	"tool-calling":         `{"model": "caller", "input": [{"type": "message", "role": "user", "content": "Weather?"}], "tools": [` + weatherTool + `]}`,
	"tool-call-streaming":  `{"model": "caller", "stream": true, "input": "Weather?", "tools": [` + weatherTool + `], "tool_choice": "required"}`,
	"image-input":          `{"model": "default", "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": "` + pixel + `"}]}]}`,
	"multi-turn":           `{"model": "default", "input": [{"type": "message", "role": "user", "content": "I am Alice."}, {"type": "message", "role": "assistant", "content": "Hello Alice!"}, {"type": "message", "role": "user", "content": "Who am I?"}]}`,
	"structured":           `{"model": "default", "input": "JSON", "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}}, "metadata": {"a": "b"}, "instructions": "Be brief", "max_output_tokens": 99, "temperature": 0.5}`,
	"not-stored-streaming": `{"model": "default", "stream": true, "store": false, "input": "Hello"}`,
}

// responseServer starts a server with agents for responses.
func responseServer(t *testing.T) (url, scripted string) {
	t.Helper()
	scripted = binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"rate": 0}`)})
	url, _ = binary.ServerAt(t, responseConfig(scripted))
	return url + "/v1", scripted
}

func responseConfig(scripted string) string {
	agent := func(script string) string {
		return fmt.Sprintf(`{"provider": "main", "request_options": {"loquat_script": %s}}`, script)
	}
	return fmt.Sprintf(`{
		"server": {"auth_tokens": [{"name": "f", "token": %q, "scope": "full"}]},
		"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1"}},
		"agents": {"default": {"provider": "main"}, "thinker": %s, "caller": %s, "slow": %s}}`, fullToken, scripted,
		agent(`{"reasoning": "Let me think.", "text": "Forty-two."}`),
		agent(`{"tool_calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]}`),
		agent(`{"text": "One two three four five six seven eight nine ten, and é.", "rate": 8}`))
}

// Answers and events of the compliance cases have the schemas of Open Responses, and a replayed stream
// has the events of the live one.
func TestOpenResponses(t *testing.T) {
	schemas := readOpenResponses(t)
	url, _ := responseServer(t)
	for name, body := range complianceCases {
		t.Run(name, func(t *testing.T) {
			var response map[string]any
			if !strings.Contains(body, `"stream": true`) {
				response = answer(t, http.StatusOK, "POST", url+"/responses", body)
			} else {
				live, done := events(t, callAPI(t, "POST", url+"/responses", body), 1000)
				if !done {
					t.Fatal("the stream has no end")
				}
				checkEvents(t, schemas, live)
				response = live[len(live)-1]["response"].(map[string]any)
				checkReplay(t, url, live)
			}
			schemas.check(t, "ResponseResource", response)
			text, types := outputText(response)
			if calls := strings.HasPrefix(name, "tool-"); response["status"] != "completed" || calls != (strings.Join(types, " ") == "function_call") || calls == (text != "") {
				t.Errorf("the response is %s", binary.MustJSON(t, response))
			}
		})
	}
}

// checkEvents checks the schemas and the order of events, and that deltas add up to the text.
func checkEvents(t *testing.T, schemas *openResponses, list []map[string]any) {
	t.Helper()
	last, sum := -1.0, map[string]string{}
	for _, e := range list {
		kind := e["type"].(string)
		if schemas != nil {
			schemas.check(t, schemas.schemaOfEvent(t, kind), e)
		}
		if n := e["sequence_number"].(float64); n <= last {
			t.Errorf("%s has the number %.0f after %.0f", kind, n, last)
		} else {
			last = n
		}
		id, _ := e["item_id"].(string)
		if delta, ok := e["delta"].(string); ok {
			sum[id] += delta
		}
		for _, field := range []string{"text", "arguments"} {
			if whole, ok := e[field].(string); ok && whole != sum[id] {
				t.Errorf("the deltas are %q, the text is %q", sum[id], whole)
			}
		}
	}
}

// checkReplay resumes a complete stream after each of its events.
func checkReplay(t *testing.T, url string, live []map[string]any) {
	t.Helper()
	response := live[0]["response"].(map[string]any)
	path := url + "/responses/" + response["id"].(string)
	if response["store"] == false {
		answer(t, http.StatusNotFound, "GET", path, "")
		return
	}
	for i := -1; i < len(live); i += 1 + len(live)/20 {
		query := "?stream=true"
		if i >= 0 {
			query += fmt.Sprintf("&starting_after=%.0f", live[i]["sequence_number"])
		}
		replayed, done := events(t, callAPI(t, "GET", path+query, ""), 1000)
		if !done {
			t.Fatal("the stream has no end")
		}
		if want, got := joined(t, live[i+1:]), joined(t, replayed); want != got {
			t.Errorf("after %d the events are\n%s\nwant\n%s", i, got, want)
		}
	}
}

// joined returns events as text, with neighbouring deltas as one.
func joined(t *testing.T, list []map[string]any) string {
	t.Helper()
	var out []string
	deltas := ""
	for _, e := range list {
		if delta, ok := e["delta"].(string); ok {
			deltas += delta
			continue
		}
		if deltas != "" {
			out, deltas = append(out, "deltas "+deltas), ""
		}
		out = append(out, string(binary.MustJSON(t, e)))
	}
	return strings.Join(append(out, deltas), "\n")
}

// A stream resumes with the next character after the connection broke, and after the server was killed;
// the response then has failed with the text that was seen.
func TestResponseSurvivesAKill(t *testing.T) {
	scripted := binary.ScriptedBackend(t, backend.Options{})
	config := binary.WriteConfig(t, responseConfig(scripted))
	data := t.TempDir()
	serve := func() *binary.Process {
		return binary.Start(t, nil, "serve", "--config", config, "--listen", "127.0.0.1:0", "--data", data)
	}
	p := serve()
	url := p.URL + "/v1"
	response := answer(t, http.StatusOK, "POST", url+"/responses", `{"model": "slow", "input": "Go", "background": true}`)
	if response["status"] != "in_progress" {
		t.Fatalf("the status is %v", response["status"])
	}
	discarded, _ := events(t, callAPI(t, "POST", url+"/responses", `{"model": "slow", "input": "Go", "store": false, "stream": true}`), 5)
	path := "/responses/" + response["id"].(string)
	var all []map[string]any
	follow := func(most int) (done bool) {
		query := "?stream=true"
		if len(all) > 0 {
			query += fmt.Sprintf("&starting_after=%.0f", all[len(all)-1]["sequence_number"])
		}
		list, done := events(t, callAPI(t, "GET", url+path+query, ""), most)
		all = append(all, list...)
		return done
	}
	follow(5)
	follow(2) // another connection
	p.Kill(t)
	p = serve()
	url = p.URL + "/v1"
	if !follow(1000) {
		t.Fatal("the stream has no end")
	}
	checkEvents(t, nil, all)
	last := all[len(all)-1]
	text, _ := outputText(last["response"].(map[string]any))
	if last["type"] != "response.failed" || !strings.HasPrefix(text, "One two") {
		t.Errorf("the last event is %s", binary.MustJSON(t, last))
	}
	gone := discarded[0]["response"].(map[string]any)
	answer(t, http.StatusNotFound, "GET", url+"/responses/"+gone["id"].(string), "")
	conversation := gone["conversation"].(map[string]any)["id"].(string)
	answer(t, http.StatusNotFound, "GET", p.URL+"/sessions/"+strings.TrimPrefix(conversation, "conv_"), "")
}

// Responses continue each other, fork, are cancelled and deleted; the sessions show it.
func TestResponsesOfSessions(t *testing.T) {
	url, _ := responseServer(t)
	first := answer(t, http.StatusOK, "POST", url+"/responses", `{"input": "first"}`)
	id := first["id"].(string)
	after := func(id, body string) map[string]any {
		return answer(t, http.StatusOK, "POST", url+"/responses", fmt.Sprintf(`{"previous_response_id": %q, %s}`, id, body))
	}
	second, fork := after(id, `"input": "second"`), after(id, `"input": "fork"`)
	if binaryEqual(t, first["conversation"], second["conversation"]) != true || binaryEqual(t, first["conversation"], fork["conversation"]) {
		t.Errorf("the conversations are %v, %v and %v", first["conversation"], second["conversation"], fork["conversation"])
	}
	session := func(r map[string]any) map[string]any {
		id := strings.TrimPrefix(r["conversation"].(map[string]any)["id"].(string), "conv_")
		return answer(t, http.StatusOK, "GET", strings.TrimSuffix(url, "v1")+"sessions/"+id, "")
	}
	if n := len(session(second)["messages"].([]any)); n != 4 {
		t.Errorf("the session has %d messages", n)
	}
	called := answer(t, http.StatusOK, "POST", url+"/responses", `{"model": "caller", "input": "x", "tools": [`+weatherTool+`]}`)
	call := called["output"].([]any)[0].(map[string]any)["call_id"].(string)
	answer(t, http.StatusBadRequest, "POST", url+"/responses", fmt.Sprintf(`{"previous_response_id": %q, "input": "no output"}`, called["id"]))
	result := after(called["id"].(string), fmt.Sprintf(`"input": [{"type": "function_call_output", "call_id": %q, "output": "rain"}]`, call))
	if text, _ := outputText(result); text != backend.ToolResultsText {
		t.Errorf("the answer is %q", text)
	}
	slow := answer(t, http.StatusOK, "POST", url+"/responses", `{"model": "slow", "input": "x", "background": true}`)
	time.Sleep(300 * time.Millisecond)
	cancelled := answer(t, http.StatusOK, "POST", url+"/responses/"+slow["id"].(string)+"/cancel", "")
	if cancelled["status"] != "cancelled" {
		t.Errorf("the status is %v", cancelled["status"])
	}
	answer(t, http.StatusOK, "DELETE", url+"/responses/"+id, "")
	answer(t, http.StatusNotFound, "GET", url+"/responses/"+id, "")
	if n := len(session(second)["messages"].([]any)); n != 2 {
		t.Errorf("the session has %d messages after the deletion", n)
	}
	items := answer(t, http.StatusOK, "GET", url+"/responses/"+second["id"].(string)+"/input_items", "")
	if n := len(items["data"].([]any)); n != 1 {
		t.Errorf("the response has %d items of input", n)
	}
}

func binaryEqual(t *testing.T, a, b any) bool {
	t.Helper()
	return binary.SameJSON(binary.MustJSON(t, a), binary.MustJSON(t, b))
}

// Hostile and unsupported bodies get errors of OpenAI's form, which name the field.
func TestFaultsOfResponses(t *testing.T) {
	url, _ := responseServer(t)
	for body, param := range map[string]string{
		`{`:                            "", // no field is wrong
		`[]`:                           "",
		`{}`:                           "input",
		`{"input": null}`:              "input",
		`{"input": []}`:                "input",
		`{"input": 1}`:                 "input",
		`{"input": "x", "input": "y"}`: "input",
		`{"input": [1]}`:               "input[0]",
		`{"input": [{"type": "item_reference", "id": "x"}]}`:                                      "input[0].id",
		`{"input": [{"role": "user", "content": {}}]}`:                                            "input[0].content",
		`{"input": [{"role": "king", "content": ""}]}`:                                            "input[0].role",
		`{"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}`:                     "input[0].content[0].type",
		`{"input": [{"role": "assistant", "content": "x"}]}`:                                      "input",
		`{"input": [{"type": "function_call_output", "call_id": "x", "output": ""}]}`:             "input",
		`{"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x:y"}]}]}`: "input[0].attachments[0].url",
		`{"input": "x", "tools": [{"type": "web_search"}]}`:                                       "tools[0].type",
		`{"input": "x", "tools": [{"type": "function"}]}`:                                         "tools[0].name",
		`{"input": "x", "tool_choice": {"type": "file_search"}}`:                                  "tool_choice.type",
		`{"input": "x", "text": {"format": {"type": "xml"}}}`:                                     "text.format.type",
		`{"input": "x", "truncation": "auto"}`:                                                    "truncation",
		`{"input": "x", "previous_response_id": "resp_x"}`:                                        "previous_response_id",
		`{"input": "x", "conversation": "x"}`:                                                     "conversation",
		`{"input": "x", "background": true, "store": false}`:                                      "background",
		`{"input": "x", "temperature": "hot"}`:                                                    "temperature",
		`{"input": "x", "metadata": {"a": 1}}`:                                                    "metadata.a",
		`{"input": ` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}`:                  "input" + strings.Repeat("[0]", 40),
	} {
		fault, _ := answer(t, http.StatusBadRequest, "POST", url+"/responses", body)["error"].(map[string]any)
		got, _ := fault["param"].(string)
		if fault["type"] != "invalid_request_error" || fault["message"] == "" || !strings.HasPrefix(got, strings.TrimSuffix(param, strings.Repeat("[0]", 40))) || param == "" != (got == "") {
			t.Errorf("%.80s: the error is %v, want the field %q", body, fault, param)
		}
	}
}
