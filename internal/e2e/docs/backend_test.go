package docs_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loquat/internal/e2e/binary"
)

// The program replays a recording byte for byte once its faults are through, and
// ends well on SIGTERM while a stream hangs.
func TestBackendCommand(t *testing.T) {
	const recording = "data: {\"choices\":[]}\n\ndata: [DONE]\n\n"
	file := filepath.Join(t.TempDir(), "one.sse")
	if err := os.WriteFile(file, []byte(recording), 0o644); err != nil {
		t.Fatal(err)
	}
	p := binary.Start(t, nil, "backend", "--listen", "127.0.0.1:0", "--replay", file, "--reframe", "crlf",
		"--fault", "status=503,times=2", "--fault", "stall_after=5,times=1")
	ask := func() (int, string) {
		resp, err := http.Post(p.URL+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	for range 2 {
		if status, body := ask(); status != 503 || !strings.Contains(body, `"error"`) {
			t.Errorf("%d %s", status, body)
		}
	}
	for range 2 {
		if status, body := ask(); status != 200 || body != strings.ReplaceAll(recording, "\n", "\r\n") {
			t.Errorf("%d %q", status, body)
		}
	}
	hanging, err := http.NewRequestWithContext(t.Context(), "POST", p.URL+"/v1/chat/completions",
		strings.NewReader(`{"model":"m","messages":[{"role":"user"}],"loquat_script":{"id":"hang","attempts":[{"stall_after":1}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(hanging)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	p.End(t) // fails the test unless the exit code is 0
}
