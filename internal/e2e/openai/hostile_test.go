package openai_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
)

// failure is the body of an error in OpenAI's form.
type failure struct {
	Error struct {
		Message, Type string
		Param, Code   *string
	}
}

// post sends a body and returns the status and the error, if it is one.
func post(t *testing.T, url, token string, body io.Reader) (status int, f failure, header http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode >= 400 {
		d := json.NewDecoder(bytes.NewReader(answer))
		d.DisallowUnknownFields()
		if err := d.Decode(&f); err != nil || f.Error.Message == "" || f.Error.Type == "" {
			t.Errorf("%s answers %d with %.300s (%v)", url, resp.StatusCode, answer, err)
		}
	}
	return resp.StatusCode, f, resp.Header
}

// Hostile and wrong input gets errors in OpenAI's form, on every path below /v1/.
func TestHostileInput(t *testing.T) {
	server, _ := servers(t, backend.Options{Script: json.RawMessage(`{"rate": 0}`)})
	completions := server + "/v1/chat/completions"
	messages := strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"x"},`, 100_000), ",")
	if status, f, _ := post(t, completions, fullToken, strings.NewReader(`{"model":"echo","messages":[`+messages+`]}`)); status != 200 {
		t.Errorf("100,000 messages: %d %+v", status, f)
	}
	for name, tc := range map[string]struct {
		path, token, body string
		status            int
		param             string
	}{
		"50 MB":           {"/v1/chat/completions", fullToken, `{"model":"echo","messages":[{"role":"user","content":"` + strings.Repeat("x", 50<<20) + `"}]}`, 413, ""},
		"deep":            {"/v1/chat/completions", fullToken, `{"model":"echo","x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, 400, ""},
		"not JSON":        {"/v1/chat/completions", fullToken, `model=echo`, 400, ""},
		"a list":          {"/v1/chat/completions", fullToken, `[{"model":"echo"}]`, 400, ""},
		"invalid UTF-8":   {"/v1/chat/completions", fullToken, "{\"model\":\"\xff\"}", 400, "model"},
		"two models":      {"/v1/chat/completions", fullToken, `{"model":"echo","model":"demo"}`, 400, "model"},
		"no body":         {"/v1/chat/completions", fullToken, ``, 400, ""},
		"model of a type": {"/v1/chat/completions", fullToken, `{"model":["echo"]}`, 400, "model"},
		"n of a type":     {"/v1/chat/completions", fullToken, `{"model":"echo","n":"1"}`, 400, "n"},
		"unknown route":   {"/v1/embeddings", fullToken, `{}`, 404, ""},
		"unknown below":   {"/v1/chat/completions/1/messages", fullToken, `{}`, 404, ""},
		"only the prefix": {"/v1/", fullToken, `{}`, 404, ""},
		"no prefix":       {"/chat/completions", fullToken, `{}`, 404, ""},
		"no prefix, //":   {"//responses", fullToken, `{}`, 404, ""},
		"double slash":    {"/v1//models", fullToken, `{}`, 404, ""},
		"wrong method":    {"/v1/models", fullToken, `{}`, 405, ""},
		"wrong token":     {"/v1/chat/completions", "wrong", `{"model":"echo","messages":[]}`, 401, ""},
		"a token to read": {"/v1/chat/completions", "read-token", `{"model":"echo","messages":[]}`, 403, ""},
		"a long model":    {"/v1/models", fullToken, strings.Repeat("x", 10_000), 405, ""},
	} {
		t.Run(name, func(t *testing.T) {
			status, f, _ := post(t, server+tc.path, tc.token, strings.NewReader(tc.body))
			if status != tc.status || tc.param != "" && (f.Error.Param == nil || *f.Error.Param != tc.param) {
				t.Errorf("got %d %+v, want %d and param %q", status, f, tc.status, tc.param)
			}
			if strings.HasPrefix(name, "no prefix") && !strings.HasSuffix(f.Error.Message, "; the base URL must end in /v1") {
				t.Errorf("the message is %q", f.Error.Message)
			}
			if len(f.Error.Message) > 3000 {
				t.Errorf("the message has %d bytes", len(f.Error.Message))
			}
		})
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, completions, strings.NewReader(`{"model":"echo","messages":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + fullToken, "Content-Type": "text/plain"} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("text/plain: %s", resp.Status)
	}
}

// changes are the routes that take a body, with a body that all of them would read to its end.
var changes = map[string]string{
	"/v1/responses":              `{"input":%s}`,
	"/v1/responses/compact":      `{"input":%s}`,
	"/v1/conversations":          `{"items":%s}`,
	"/v1/conversations/%s":       `{"metadata":{"a":"b"},"x":%s}`,
	"/v1/conversations/%s/items": `{"items":%s}`,
}

// Hostile bodies of responses and conversations get errors in OpenAI's form, and need little memory.
func TestHostileResponses(t *testing.T) {
	p, url := hostileServer(t)
	conversation := answer(t, http.StatusOK, http.MethodPost, url+"/v1/conversations", `{}`)["id"].(string)
	list := func(item string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	message := `{"role":"user","content":"x"}`
	for path, body := range changes {
		path = strings.Replace(path, "%s", conversation, 1)
		isUpdate := strings.Contains(body, "metadata")
		for name, tc := range map[string]struct {
			value  string
			status int
		}{
			"50 MB":          {`"` + strings.Repeat("x", 50<<20) + `"`, http.StatusRequestEntityTooLarge},
			"100,000 items":  {list(message, 100_000), http.StatusBadRequest},
			"depth":          {strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000), http.StatusBadRequest},
			"NaN":            {"NaN", http.StatusBadRequest},
			"a surrogate":    {`"\ud800"`, http.StatusBadRequest},
			"twice":          {`{"a":1,"a":2}`, http.StatusBadRequest},
			"another type":   {`[7]`, http.StatusBadRequest},
			"the wrong item": {list(`{"type":"hosted"}`, 1), http.StatusBadRequest},
		} {
			if isUpdate && (name == "100,000 items" || name == "another type" || name == "the wrong item") {
				continue // an unknown field
			}
			status, f, _ := post(t, url+path, fullToken, strings.NewReader(strings.Replace(body, "%s", tc.value, 1)))
			if status != tc.status || len(f.Error.Message) > 3000 {
				t.Errorf("%s with %s: %d %.300s, want %d", path, name, status, f.Error.Message, tc.status)
			}
		}
		for _, text := range []string{``, `null`, `[]`, `{"input":`, "\xff"} {
			if status, f, _ := post(t, url+path, fullToken, strings.NewReader(text)); status != http.StatusBadRequest && (text != "" || path != "/v1/conversations") {
				t.Errorf("%s with %q: %d %+v", path, text, status, f)
			}
		}
	}
	for _, path := range []string{"/v1/responses/compact/x", "/v1/responses/resp_x/output", "/v1/conversations/conv_x/items/x/y", "/v1/conversation", "/v1/responses/resp_x/cancel"} {
		if status, f, _ := post(t, url+path, fullToken, strings.NewReader(`{}`)); status != http.StatusNotFound {
			t.Errorf("%s: %d %+v", path, status, f)
		}
	}
	if peak := binary.Memory(t, p, "VmHWM"); peak > hostileMemory {
		t.Errorf("the server used %d MB at most, want at most %d", peak>>20, hostileMemory>>20)
	} else {
		fmt.Printf("responses: hostile bodies need %d MB at most\n", peak>>20)
	}
}

// hostileMemory bounds the memory of the server while it refuses hostile bodies of up to the limit of 8 MiB.
const hostileMemory = 256 << 20

// hostileServer starts a server of its own process, whose memory can be measured.
func hostileServer(t *testing.T) (p *binary.Process, url string) {
	t.Helper()
	scripted := binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"rate": 0}`)})
	dir := t.TempDir()
	binary.WriteFiles(t, dir, map[string]string{"loquat.json": responseConfig(scripted)})
	p = binary.Start(t, nil, "serve", "--config", dir+"/loquat.json", "--listen", "127.0.0.1:0", "--data", t.TempDir())
	return p, p.URL
}

// The backend gets the body as it came, and no header of the program.
func TestWhatTheBackendGets(t *testing.T) {
	type seen struct {
		header http.Header
		body   string
	}
	got := make(chan seen, 1)
	scripted := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- seen{r.Header, string(body)}
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("OpenAI-Organization", "org-secret")
		w.Header().Set("X-RateLimit-Remaining-Requests", "7")
		w.Header().Set("X-Request-Id", "req_1")
		_, _ = io.WriteString(w, `{ "choices" : [] , "x":1.00 }`)
	}))
	defer scripted.Close()
	server, _ := binary.ServerAt(t, `{"providers": {"main": {"provider": "reference_generic_compatible", "model": "m", "base_url": "`+scripted.URL+`/v1", "api_key": "sk-of-the-server"}}}`)
	const body = "{\"messages\" : [ {\"role\":\"user\",\"content\":\"\\u00e9\"} ],\n \"temperature\":1.0, \"model\":\"main\\/m2\"}\n"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"OpenAI-Organization", "OpenAI-Project", "X-Stainless-Lang", "X-Stainless-Retry-Count", "Idempotency-Key", "Cookie", "X-Forwarded-For", "Accept-Language"} {
		req.Header.Set(name, "x")
	}
	req.Header.Set("User-Agent", "OpenAI/JS")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	if string(answer) != `{ "choices" : [] , "x":1.00 }` || resp.Header.Get("X-RateLimit-Remaining-Requests") != "7" || resp.Header.Get("X-Request-Id") != "req_1" {
		t.Errorf("the answer is %s %q with %v", resp.Status, answer, resp.Header)
	}
	if resp.Header.Get("Set-Cookie") != "" || resp.Header.Get("OpenAI-Organization") != "" {
		t.Errorf("headers of the backend came along: %v", resp.Header)
	}
	s := <-got
	if want := strings.Replace(body, `"main\/m2"`, `"m2"`, 1); s.body != want {
		t.Errorf("the backend got\n%q, want\n%q", s.body, want)
	}
	if s.header.Get("Authorization") != "Bearer sk-of-the-server" || !strings.HasPrefix(s.header.Get("User-Agent"), "loquat/") {
		t.Errorf("headers %v", s.header)
	}
	for name := range s.header {
		switch name {
		case "Authorization", "User-Agent", "Content-Type", "Content-Length", "Accept", "Accept-Encoding":
		default:
			t.Errorf("the backend got the header %s: %s", name, s.header.Get(name))
		}
	}
}

// When the server stops, a relayed request gets its grace time, then an end that its program sees.
func TestStopOfTheServer(t *testing.T) {
	scripted := binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"rate": 0, "text": "One two three", "stall_after": 2}`)})
	dir := t.TempDir()
	binary.WriteFiles(t, dir, map[string]string{"loquat.json": `{"server": {"shutdown_grace_seconds": 0.5},
		"providers": {"main": {"provider": "reference_generic_compatible", "model": "m", "base_url": "` + scripted + `/v1"}}}`})
	p := binary.Start(t, nil, "serve", "--config", dir+"/loquat.json", "--listen", "127.0.0.1:0", "--data", t.TempDir())
	resp, err := http.Post(p.URL+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	time.AfterFunc(100*time.Millisecond, func() { _ = p.Cmd.Process.Signal(syscall.SIGTERM) })
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%v after %q", err, body)
	}
	if !strings.Contains(string(body), "two ") || !strings.Contains(string(body), "data: {\"error\":{\"message\":\"the server is shutting down") {
		t.Errorf("the stream is %s", body)
	}
}
