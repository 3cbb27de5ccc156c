package access_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/e2e/binary"
)

// A reload can let others reach a server, and take its tokens away. Both at once would open it to everybody.
func TestReloadDoesNotOpenTheServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "loquat.json")
	write := func(server string) {
		t.Helper()
		binary.WriteFile(t, file, fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "m", "base_url": "http://127.0.0.1:1/v1"}}, "server": {%s}}`, server))
	}
	const key, public = `"auth_tokens": [{"name": "k", "token": "config-token", "scope": "full"}]`, `"public_url": "https://chat.example.org"`
	write(key)
	p := binary.Start(t, nil, "serve", "--config", file, "--listen", "127.0.0.1:0", "--data", t.TempDir())
	call := func(token, method, path, body string) (status int, answer string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, p.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return binary.AnswerOf(t, resp)
	}
	reload := func(token string, want int) {
		t.Helper()
		if status, answer := call(token, http.MethodPost, "/config/reload", ""); status != want {
			t.Errorf("a reload gives %d %s, want %d", status, answer, want)
		}
	}
	write(key + ", " + public)
	reload("config-token", http.StatusOK)
	write(public)
	reload("config-token", http.StatusUnprocessableEntity)
	if status, _ := call("", http.MethodGet, "/sessions", ""); status != http.StatusUnauthorized {
		t.Errorf("the server is open to everybody: %d", status)
	}
	status, answer := call("config-token", http.MethodPost, "/tokens", `{"name": "own", "scope": "full"}`)
	var made loquat.MadeToken
	if err := json.Unmarshal([]byte(answer), &made); err != nil || status/100 != 2 {
		t.Fatalf("POST /tokens gives %d %s, %v", status, answer, err)
	}
	reload("config-token", http.StatusOK) // the server has a token of its own now
	if status, answer := call(made.Token, http.MethodDelete, "/tokens/"+made.TokenID, ""); status != http.StatusConflict {
		t.Errorf("the last token is revoked: %d %s", status, answer)
	}
}
