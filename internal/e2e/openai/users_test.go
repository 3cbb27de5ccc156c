package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
)

const (
	annsToken = "the-token-of-ann-0000"
	bobsToken = "the-token-of-bob-0000"
)

// userServer starts a server with two users, of whom bob may use one agent alone.
func userServer(t *testing.T) (url string) {
	t.Helper()
	scripted := binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"rate": 0, "text": "a reply"}`)})
	url, _ = binary.ServerAt(t, fmt.Sprintf(`{
		"server": {"auth_tokens": [{"name": "f", "token": %q, "scope": "full"}, {"name": "ann", "token": %q, "scope": "user", "user": "ann"},
			{"name": "bob", "token": %q, "scope": "user", "user": "bob", "role": "narrow"}],
			"roles": {"narrow": {"agents": ["default"], "models": ["demo"]}}},
		"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1"}},
		"agents": {"default": {"provider": "main"}, "other": {"provider": "main"}}}`, fullToken, annsToken, bobsToken, scripted))
	return url
}

// callAs makes a call with a token, and returns its status and answer.
func callAs(t *testing.T, token, method, url, body string) (int, string) {
	t.Helper()
	resp := call(t, token, method, url, body)
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// made makes a call of bob's, and returns the id in the answer, and the whole answer.
func made(t *testing.T, url, body string) (id string, answer map[string]any) {
	t.Helper()
	status, text := callAs(t, bobsToken, "POST", url, body)
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK {
		t.Fatalf("POST %s %s: %d %s", url, body, status, text)
	}
	return answer["id"].(string), answer
}

// Responses and conversations of one user do not exist for another one: on every route, in bodies and on sockets.
func TestResponsesOfUsers(t *testing.T) {
	url := userServer(t)
	v1 := url + "/v1"
	response, body := made(t, v1+"/responses", `{"model": "default", "input": "canary-question"}`)
	item := body["output"].([]any)[0].(map[string]any)["id"].(string)
	conversation, _ := made(t, v1+"/conversations", `{"items": [{"type": "message", "role": "user", "content": "canary-item"}]}`)
	inConversation, _ := made(t, v1+"/responses", `{"model": "default", "input": "go on", "conversation": "`+conversation+`"}`)

	// The user's own sessions, and its own token's calls.
	if status, text := callAs(t, bobsToken, "GET", url+"/sessions", ""); status != http.StatusOK || strings.Count(text, `"user":"bob"`) != 2 {
		t.Errorf("bob has the sessions %d %s", status, text)
	}
	for _, path := range []string{"/responses/" + response, "/responses/" + inConversation, "/conversations/" + conversation, "/conversations/" + conversation + "/items", "/responses/" + response + "/input_items"} {
		if status, text := callAs(t, bobsToken, "GET", v1+path, ""); status != http.StatusOK {
			t.Errorf("bob's GET %s: %d %s", path, status, text)
		}
		if status, _ := callAs(t, fullToken, "GET", v1+path, ""); status != http.StatusOK {
			t.Errorf("everybody's GET %s: %d", path, status)
		}
	}
	if _, next := made(t, v1+"/responses", `{"model": "default", "input": "and then?", "previous_response_id": "`+response+`"}`); next["status"] != "completed" {
		t.Errorf("bob's next response: %v", next)
	}

	unknown := strings.NewReplacer(response, "resp_unknown", inConversation, "resp_unknown", conversation, "conv_unknown", item, "msg_unknown-r0", strings.TrimPrefix(conversation, "conv_"), "unknown")
	same := func(what string, theirs, none string) {
		t.Helper()
		if strings.Contains(theirs, "canary") || unknown.Replace(theirs) != none {
			t.Errorf("%s: %s, but of what does not exist %s", what, theirs, none)
		}
	}
	var document struct{ Paths map[string]map[string]any }
	if _, text := callAs(t, fullToken, "GET", url+"/openapi.json", ""); json.Unmarshal([]byte(text), &document) != nil {
		t.Fatal("the OpenAPI document cannot be read")
	}
	calls := 0
	for path, methods := range document.Paths {
		if !strings.Contains(path, "{response_id}") && !strings.Contains(path, "{conversation_id}") {
			continue
		}
		for method := range methods {
			for _, body := range []string{"", `{"metadata": {"a": "b"}}`, `{"items": [{"type": "message", "role": "user", "content": "x"}]}`} {
				at := strings.NewReplacer("{response_id}", response, "{conversation_id}", conversation, "{item_id}", item).Replace(path)
				status, theirs := callAs(t, annsToken, strings.ToUpper(method), url+at, body)
				none, text := callAs(t, annsToken, strings.ToUpper(method), url+unknown.Replace(at), body)
				if same(method+" "+path, theirs, text); status != none || status < 400 {
					t.Errorf("%s %s: %d and %d", method, path, status, none)
				}
				calls++
			}
		}
	}
	if calls < 20 {
		t.Errorf("only %d calls were made", calls)
	}
	ws, _, err := dial(t, v1, annsToken)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{
		`{"model": "default", "input": "x", "previous_response_id": "` + response + `"}`,
		`{"model": "default", "input": "x", "conversation": "` + conversation + `"}`,
		`{"model": "default", "input": [{"type": "item_reference", "id": "` + item + `"}]}`,
	} {
		for _, path := range []string{"/responses", "/responses/compact", "/conversations"} {
			if path == "/conversations" {
				body = strings.Replace(body, `"input": [`, `"items": [`, 1)
			}
			status, theirs := callAs(t, annsToken, "POST", v1+path, body)
			none, text := callAs(t, annsToken, "POST", v1+path, unknown.Replace(body))
			if names := path == "/responses" || strings.Contains(body, "item_reference") || path == "/responses/compact" && strings.Contains(body, "previous"); names != (status >= 400) {
				t.Errorf("%s with %s: %d %s", path, body, status, theirs)
			}
			if status == http.StatusOK { // the field counts for nothing here, and ids differ
				text = unknown.Replace(theirs)
			}
			if same(path+" with "+body, theirs, text); status != none {
				t.Errorf("%s with %s: %d and %d", path, body, status, none)
			}
		}
		message := `{"type": "response.create", ` + strings.Replace(body, `"items": [`, `"input": [`, 1)[1:]
		theirs, none := binary.MustJSON(t, turn(t, ws, message)), binary.MustJSON(t, turn(t, ws, unknown.Replace(message)))
		same("a socket with "+body, string(theirs), string(none))
	}

	// The role of bob binds all that calls a model, in sessions of another agent too.
	own, _, err := dial(t, v1, bobsToken)
	if err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{"", `, "conversation": "` + conversation + `"`, `, "previous_response_id": "` + response + `"`} {
		body := `{"model": "other", "input": "x"` + more + `}`
		for _, path := range []string{"/responses", "/responses/compact"} {
			if status, text := callAs(t, bobsToken, "POST", v1+path, body); status != http.StatusForbidden {
				t.Errorf("bob's %s with another agent, %s: %d %s", path, body, status, text)
			}
		}
		if text := string(binary.MustJSON(t, turn(t, own, `{"type": "response.create", `+body[1:]))); !strings.Contains(text, "403") {
			t.Errorf("bob's socket with another agent, %s: %s", body, text)
		}
	}
}

// Relayed requests count for the bound of running requests while they run: also if the server is killed.
func TestBoundOfRelayedRequests(t *testing.T) {
	scripted := binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"rate": 0, "text": "ok"}`)})
	cfg := filepath.Join(t.TempDir(), "loquat.json")
	if err := os.WriteFile(cfg, fmt.Appendf(nil, `{
		"server": {"auth_tokens": [{"name": "f", "token": %q, "scope": "full"}, {"name": "ann", "token": %q, "scope": "user", "user": "ann"}],
			"roles": {"user": {"bounds": {"running_requests": 1}}}},
		"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1"}},
		"agents": {"default": {"provider": "main"}, "slow": {"provider": "main", "request_options": {"loquat_script": {"text": "one two three four five six seven eight nine ten", "rate": 4}}}}}`,
		fullToken, annsToken, scripted), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"serve", "--config", cfg, "--listen", binary.FreeAddress(t), "--data", filepath.Join(t.TempDir(), "data")}
	server := binary.Start(t, nil, args...)
	ask := func(model string) (int, string) {
		return callAs(t, annsToken, "POST", server.URL+"/v1/chat/completions", `{"model": "`+model+`", "messages": [{"role": "user", "content": "hi"}]}`)
	}
	for range 20 { // one after the other they are never at the bound
		if status, text := ask("default"); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
	slow := func() (end context.CancelFunc) {
		t.Helper()
		ctx, end := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/v1/chat/completions", strings.NewReader(`{"model": "slow", "stream": true, "messages": [{"role": "user", "content": "hi"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+annsToken)
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v %v", resp, err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return end
	}
	end := slow()
	for _, call := range []struct{ path, body string }{
		{"/v1/chat/completions", `{"model": "default", "messages": [{"role": "user", "content": "hi"}]}`},
		{"/v1/responses/compact", `{"model": "default", "input": "hi"}`},
		{"/v1/responses", `{"model": "default", "input": "hi"}`},
		{"/sessions", `{"send": {"content": "hi"}}`},
	} {
		if status, text := callAs(t, annsToken, "POST", server.URL+call.path, call.body); status != http.StatusTooManyRequests || !strings.Contains(text, "running_requests") {
			t.Errorf("%s beside a relayed request: %d %s", call.path, status, text)
		}
	}
	end()
	binary.Eventually(t, "the end counts", func() bool { status, _ := ask("default"); return status == http.StatusOK })
	defer slow()()
	server.Kill(t)
	server = binary.Start(t, nil, args...)
	if status, text := ask("default"); status != http.StatusOK {
		t.Errorf("after a kill: %d %s", status, text)
	}
}

// Each route below /v1/ answers each kind of caller as it may: the routes are those of the server's document.
func TestAccessToFaces(t *testing.T) {
	url := userServer(t)
	var document struct{ Paths map[string]map[string]any }
	if _, text := callAs(t, fullToken, "GET", url+"/openapi.json", ""); json.Unmarshal([]byte(text), &document) != nil {
		t.Fatal("the OpenAPI document cannot be read")
	}
	token := func(body string) string {
		t.Helper()
		var out struct{ Token string }
		if status, text := callAs(t, fullToken, "POST", url+"/tokens", body); status != http.StatusCreated || json.Unmarshal([]byte(text), &out) != nil {
			t.Fatalf("%d %s", status, text)
		}
		return out.Token
	}
	callAs(t, fullToken, "POST", url+"/sessions", `{"session_id": "mine"}`)
	expired := token(`{"name": "e", "scope": "user", "user": "ann", "expires_in_seconds": 1}`)
	time.Sleep(1100 * time.Millisecond)
	always := func(status int) func(string, string) int { return func(string, string) int { return status } }
	callers := map[string]struct {
		token string
		may   func(method, path string) int // 401, 403, or 0: it may
	}{
		"nobody": {"", always(401)}, "a wrong token": {"wrong", always(401)}, "an expired token": {expired, always(401)},
		"full": {fullToken, always(0)}, "a user": {annsToken, always(0)}, "a user with a role": {bobsToken, always(0)},
		"session": {token(`{"name": "s", "scope": "session", "session_id": "mine"}`), always(403)},
		"read": {token(`{"name": "r", "scope": "read"}`), func(method, path string) int {
			if method == "GET" && path != "/v1/responses" { // where a WebSocket makes responses
				return 0
			}
			return 403
		}},
	}
	calls := 0
	for path, methods := range document.Paths {
		if !strings.HasPrefix(path, "/v1/") {
			continue
		}
		for method := range methods {
			method = strings.ToUpper(method)
			for what, c := range callers {
				at := strings.NewReplacer("{response_id}", "resp_unknown", "{conversation_id}", "conv_unknown", "{item_id}", "unknown", "{model}", "unknown").Replace(path)
				status, text := callAs(t, c.token, method, url+at, "")
				got := status
				if status != 401 && status != 403 {
					got = 0
				}
				if want := c.may(method, path); got != want || status >= 500 {
					t.Errorf("%s %s by %s: %d, want %d: %s", method, path, what, status, want, text)
				}
				calls++
			}
		}
	}
	if calls < 100 {
		t.Errorf("only %d calls were made", calls)
	}
}
