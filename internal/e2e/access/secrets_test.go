package access_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"loquat/internal/e2e/binary"
)

// No secret appears where it should not. The test puts secrets into the configuration, files
// and the environment, has the server make more, and calls every route with a backend that
// repeats what it receives. Each secret may appear only in the answer that delivers it.
func TestSecretsStaySecret(t *testing.T) {
	planted := map[string]string{
		"the key of the provider": "sk-planted-b7e2c1d9f04a",
		"a token of a file":       "planted-full-6f2d8e1b",
		"a token for reading":     "planted-read-0c9a7d3e",
		"an environment variable": "planted-env-44f1a2b8c6",
	}
	echo := httptest.NewServer(http.HandlerFunc(echoSecrets))
	defer echo.Close()
	dir := t.TempDir()
	binary.WriteFiles(t, dir, map[string]string{
		"full":        planted["a token of a file"] + "\n",
		"loquat.json": secretsConfig(echo.URL, filepath.Join(dir, "full")),
	})
	p := binary.Start(t, []string{
		"PLANTED_KEY=" + planted["the key of the provider"], "PLANTED_READ=" + planted["a token for reading"], "OTHER_SECRET=" + planted["an environment variable"],
	}, "serve", "--config", filepath.Join(dir, "loquat.json"), "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0")

	w := &recorder{t: t, url: p.URL, token: planted["a token of a file"]}
	maps.Copy(planted, w.makeSecrets())
	inSession := w.bringSecrets()
	w.failEverywhere()
	w.readEverything()
	for _, token := range []string{planted["a token for reading"], planted["a token that was made"], planted["the token of a device"], "planted-wrong-guess"} {
		w.token = token
		w.do("POST", "/pairing", `{}`)
		w.do("GET", "/tokens", "")
	}
	planted["a wrong token"] = "planted-wrong-guess"
	running := readAll(t, filepath.Join(dir, "data"))
	p.End(t)

	evidence := map[string]string{
		"the log": p.Log.String(), "the answers": w.answers.String(),
		"the data of the running server": running, "the data of the server that was stopped": readAll(t, filepath.Join(dir, "data")),
	}
	for what, secret := range inSession { // which the data have to hold
		for _, where := range []string{"the log", "the answers"} {
			if at := strings.Index(evidence[where], secret); at >= 0 {
				t.Errorf("%s holds %s: …%q…", where, what, evidence[where][max(0, at-200):at])
			}
		}
	}
	for where, text := range evidence {
		if len(text) < 1000 {
			t.Errorf("%s: only %d bytes were looked at", where, len(text))
		}
		for what, secret := range planted {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s holds %s: …%q…", where, what, text[max(0, at-200):min(len(text), at+100)])
			}
		}
	}
	if !strings.Contains(w.answers.String(), "***") || !strings.Contains(w.answers.String(), "the backend repeats") {
		t.Error("the backend's errors did not come through, redacted")
	}
}

func secretsConfig(backend, file string) string {
	return fmt.Sprintf(`{
		"providers": {"main": {"provider": "reference_generic_compatible", "model": "m", "base_url": %q, "api_key": "${PLANTED_KEY}", "debug_stream": true}},
		"agents": {"default": {}, "listed": {"base_url": %q}},
		"server": {"auth_tokens": [
			{"name": "full", "token": "${file:%s}", "scope": "full"},
			{"name": "read", "token": "${PLANTED_READ}", "scope": "read"}
		]}
	}`, backend+"/v1", backend+"/listed", file)
}

// echoSecrets is a backend that repeats the key it received: in a status, in an error
// within a stream, and in headers.
func echoSecrets(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	key := r.Header.Get("Authorization")
	w.Header().Set("X-Request-Id", "id of "+key)
	var sent struct {
		APIKey string `json:"api_key"`
		Hook   string `json:"hook"`
	}
	_ = json.Unmarshal(body, &sent)
	repeated, _ := json.Marshal("the backend repeats " + key + " " + sent.APIKey + " " + sent.Hook)
	switch {
	case strings.HasSuffix(r.URL.Path, "/listed/models"):
		fmt.Fprintf(w, `{"data":[{"id":%s,"owner":%[1]s}]}`, repeated)
	case !strings.HasSuffix(r.URL.Path, "/chat/completions"):
		http.Error(w, "no models for "+key, http.StatusForbidden)
	case bytes.Contains(body, []byte("refuse as JSON")):
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":{"message":%s,"type":%s}}`, repeated, repeated)
	case bytes.Contains(body, []byte("refuse as text")):
		http.Error(w, "the backend repeats "+key, http.StatusBadGateway)
	case bytes.Contains(body, []byte("fail in the stream")):
		w.Header().Set("Content-Type", binary.EventStream)
		fmt.Fprintf(w, "%sdata: {\"error\":{\"message\":%s}}\n\n", binary.SSEText("half"), repeated)
	case bytes.Contains(body, []byte("no JSON")):
		w.Header().Set("Content-Type", binary.EventStream)
		fmt.Fprintf(w, "data: {broken %s\n\n", key)
	default:
		w.Header().Set("Content-Type", binary.EventStream)
		fmt.Fprintf(w, "data: {\"model\":%s,\"usage\":{\"total_tokens\":3,\"note\":%[1]s},\"citations\":[%[1]s],\"choices\":[{\"index\":0,\"delta\":{\"vendor\":%[1]s}}]}\n\n", repeated)
		fmt.Fprint(w, binary.SSEText("fine")+binary.SSEStop)
	}
}

// recorder makes calls and keeps all answers.
type recorder struct {
	t          *testing.T
	url, token string
	answers    strings.Builder
}

// do makes a call and keeps the answer with its headers.
func (w *recorder) do(method, path, body string, headers ...string) []byte {
	w.t.Helper()
	answer, header := w.quietly(method, path, body, headers...)
	fmt.Fprintf(&w.answers, "%s %s\n%v\n%s\n", method, path, header, answer)
	return answer
}

// quietly makes a call without keeping the answer, for answers that deliver a secret.
func (w *recorder) quietly(method, path, body string, headers ...string) ([]byte, http.Header) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	client := &http.Client{Timeout: 3 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body) // a stream ends at the client's timeout
	return answer, resp.Header
}

func (w *recorder) field(answer []byte, name string) string {
	w.t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(answer, &fields); err != nil {
		w.t.Fatalf("%v: %s", err, answer)
	}
	s, _ := fields[name].(string)
	if s == "" {
		w.t.Fatalf("no %s in %s", name, answer)
	}
	return s
}

// makeSecrets has the server make a secret of each kind.
func (w *recorder) makeSecrets() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	made, _ := w.quietly("POST", "/tokens", `{"name":"made"}`)
	out["a token that was made"] = w.field(made, "token")
	code := func() string {
		answer, _ := w.quietly("POST", "/pairing", "")
		return w.field(answer, "code")
	}
	used, open := code(), code()
	_, out["the secret of a used code"], _ = strings.Cut(used, "-")
	_, out["the secret of an open code"], _ = strings.Cut(open, "-")
	device, _ := w.quietly("POST", "/pairing/claim", `{"code":"`+used+`","device_name":"phone"}`)
	out["the token of a device"] = w.field(device, "token")
	_, header := w.quietly("POST", "/auth/session", `{"token":"`+out["a token that was made"]+`"}`)
	cookie, err := http.ParseSetCookie(header.Get("Set-Cookie"))
	if err != nil {
		w.t.Fatal(err)
	}
	out["a cookie"] = cookie.Value
	w.do("GET", "/sessions", "", "Authorization: ", "Cookie: "+cookie.Name+"="+cookie.Value)

	// Errors may repeat the input, but never a secret.
	w.do("POST", "/pairing/claim", `{"code":"`+used+`","device_name":"second"}`)
	w.do("POST", "/pairing/claim", `{"code":"`+open+`","device_name":"two\nlines"}`)
	w.do("POST", "/pairing/claim", `{"code":"`+open+`","device_name":7}`)
	w.do("POST", "/pairing/claim", `{"code":["`+open+`"]}`)
	w.do("POST", "/auth/session", `{"token":["`+out["a token that was made"]+`"]}`)
	w.do("POST", "/auth/session", `{"token":"`+out["a token that was made"]+`x"}`)
	w.do("POST", "/auth/session", `{"token":"`+out["a token that was made"]+`"`)
	return out
}

// bringSecrets sets secrets in a session, which its backend repeats.
func (w *recorder) bringSecrets() map[string]string {
	w.t.Helper()
	out := map[string]string{"an option of a session": "planted-option-7d1e0f", "the user part of a URL": "planted-user-part-c41"}
	w.do("POST", "/sessions", `{"session_id":"s0"}`)
	w.do("PATCH", "/sessions/s0", fmt.Sprintf(`{"metadata":{"overrides":{"request_options":{"api_key":%q,"hook":"https://me:%s@hook.example/"}}}}`,
		out["an option of a session"], out["the user part of a URL"]))
	return out
}

// failEverywhere has requests fail in every way in which a backend can return text.
func (w *recorder) failEverywhere() {
	w.t.Helper()
	for i, content := range []string{"refuse as JSON", "refuse as text", "fail in the stream", "no JSON", "reply"} {
		id := fmt.Sprintf("s%d", i)
		w.do("POST", "/sessions", fmt.Sprintf(`{"session_id":%q}`, id)) // of s0 there is one
		for _, stream := range []bool{true, false} {
			sent := w.do("POST", "/sessions/"+id+"/send", fmt.Sprintf(`{"content":%q,"stream":%v}`, content, stream))
			request := w.field(sent, "request_id")
			for range 100 {
				if answer := string(w.do("GET", "/requests/"+request, "")); !strings.Contains(answer, `"running"`) {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
	w.do("PATCH", "/sessions/s0", `{"metadata":{"overrides":{"api_key":"x"}}}`)
	w.do("POST", "/sessions/s0/actions/nothing", `{"params":{}}`)
	w.do("GET", "/models?refresh=true", "")
	if models := string(w.do("GET", "/models?agent_id=listed", "")); !strings.Contains(models, `"owner":"the backend repeats Bearer *** `) {
		w.t.Errorf("the models are %s", models)
	}
}

// readEverything reads every route that the server's own document lists.
func (w *recorder) readEverything() {
	w.t.Helper()
	var document struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(w.do("GET", "/openapi.json", ""), &document); err != nil {
		w.t.Fatal(err)
	}
	for _, path := range slices.Sorted(maps.Keys(document.Paths)) {
		if document.Paths[path]["get"] == nil {
			continue
		}
		path = strings.NewReplacer("{session_id}", "s0", "{request_id}", "unknown", "{asset_id}", "unknown", "{plugin}", "unknown").Replace(path)
		if strings.HasPrefix(path, "/events") {
			path += "?since_id=0000000000000000"
		}
		w.do("GET", path, "")
	}
}

// readAll returns the content of all files in dir.
func readAll(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	for _, name := range []string{"loquat.db", "loquat.db-wal", "loquat.lock"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		out.Write(b)
	}
	return out.String()
}
