package requests_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
)

// roomServer starts a server with limits, whose replies take a while.
func roomServer(t *testing.T, limits string) (post func(path, body string) (status int, answer string), url string) {
	t.Helper()
	scripted := binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"text": "one two three four five six", "rate": 4}`)})
	url, _ = binary.ServerAt(t, fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1"}}, "limits": {%s}}`, scripted, limits))
	return func(path, body string) (int, string) {
		t.Helper()
		resp, err := http.Post(url+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var answer bytes.Buffer
		if _, err := answer.ReadFrom(resp.Body); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s: 503 without Retry-After: %s", path, &answer)
		}
		return resp.StatusCode, answer.String()
	}, url
}

// At the bound of running requests a further one is refused, and what runs ends well. A repeat is not refused.
func TestServerRunsTooMuch(t *testing.T) {
	post, url := roomServer(t, `"max_running_requests": 1`)
	api := binary.NewClient(t, url)
	const send = `{"content": "hi", "request_id": "first"}`
	post("/sessions", `{"session_id": "one"}`)
	if status, answer := post("/sessions/one/send", send); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, answer)
	}
	for path, body := range map[string]string{
		"/sessions":            `{"session_id": "two", "send": {"content": "hi"}}`,
		"/v1/chat/completions": `{"model": "default", "messages": [{"role": "user", "content": "hi"}]}`,
		"/v1/responses":        `{"model": "default", "input": "hi"}`,
	} {
		if status, answer := post(path, body); status != http.StatusServiceUnavailable || !strings.Contains(answer, "limits.max_running_requests") {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	post("/sessions", `{"session_id": "idle"}`)
	for _, mode := range []string{"steer", "interrupt", "rollback", "queue"} {
		body := fmt.Sprintf(`{"content": "hi", "on_busy": %q}`, mode)
		if status, answer := post("/sessions/idle/send", body); status != http.StatusServiceUnavailable {
			t.Errorf("%s without anything to join: %d %s", mode, status, answer)
		}
	}
	if status, answer := post("/sessions/one/send", `{"content": "also", "on_busy": "steer"}`); status != http.StatusAccepted {
		t.Errorf("a send that joins: %d %s", status, answer)
	}
	if status, answer := post("/sessions/one/send", send); status != http.StatusAccepted {
		t.Errorf("a repeat: %d %s", status, answer)
	}
	if status, answer := post("/sessions", `{"session_id": "without-a-send"}`); status != http.StatusCreated {
		t.Errorf("a session: %d %s", status, answer)
	}
	if end := binary.FollowRequest(t.Context(), t, api, "first"); end[len(end)-1].Type != loquat.RequestCompleted {
		t.Errorf("the request ended with %v", end[len(end)-1])
	}
	binary.Eventually(t, "there is room again", func() bool {
		status, _ := post("/sessions", `{"send": {"content": "hi"}}`)
		return status == http.StatusCreated
	})
}

// While the disk has less free space than it should, nothing begins, and everything can be read.
func TestDiskBelowItsFloor(t *testing.T) {
	post, url := roomServer(t, `"min_free_disk_bytes": 1125899906842624`)
	for path, body := range map[string]string{
		"/sessions":            `{"send": {"content": "hi"}}`,
		"/sessions/import":     `{}`,
		"/v1/chat/completions": `{"model": "default", "messages": [{"role": "user", "content": "hi"}]}`,
	} {
		if status, answer := post(path, body); status != http.StatusServiceUnavailable || !strings.Contains(answer, "limits.min_free_disk_bytes") {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	if status, answer := post("/sessions", `{"session_id": "kept"}`); status != http.StatusCreated {
		t.Errorf("a session: %d %s", status, answer)
	}
	if status, _ := binary.GetOnce(t, url+"/sessions/kept"); status != http.StatusOK {
		t.Errorf("the session is answered %d", status)
	}
	_, metrics := binary.GetOnce(t, url+"/metrics")
	for _, want := range []string{`loquat_headroom_refused_total{limit="disk"} 3`, "loquat_disk_free_bytes ", "loquat_disk_free_min_bytes 1.125899906842624e+15"} {
		if !strings.Contains(string(metrics), want) {
			t.Errorf("the metrics do not have %q", want)
		}
	}
}
