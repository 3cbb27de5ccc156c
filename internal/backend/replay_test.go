package backend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loquat/internal/sse"
)

const recording = ": hello\n\ndata: {\"a\": \"b: c\"}\n\nevent: x\ndata: {\"é\":2}\n\ndata: [DONE]\n\n"

// writeRecordings writes some recordings into a folder.
func writeRecordings(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range map[string]string{
		"one.sse":                     recording,
		"deep/two.json":               `{"object": "chat.completion"}`,
		"bad.json":                    `{"error":{"message":"no"}}`,
		"bad.json" + expectedSuffix:   `{"http_status":401,"headers":{"content-type":"application/problem+json","Retry-After":"3"}}`,
		"broken.sse":                  "data: 1",
		"broken.sse" + expectedSuffix: `{`,
		"notes.txt":                   "not a recording",
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func replay(t *testing.T, name string) *Replay {
	t.Helper()
	r, err := OpenReplay(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReplayFolder(t *testing.T) {
	url := start(t, Options{Replay: replay(t, writeRecordings(t))})
	tests := []struct {
		model, header string
		status        int
		contentType   string
		body          string // the whole body, or a part of an error
	}{
		{"one.sse", "", 200, contentSSE, recording},
		{"any", "deep/two.json", 200, contentJSON, `{"object": "chat.completion"}`},
		{"bad.json", "", 401, "application/problem+json", `{"error":{"message":"no"}}`},
		{"absent.sse", "", 404, contentJSON, "model_not_found"},
		{"../one.sse", "", 404, contentJSON, "model_not_found"},
		{"notes.txt", "", 404, contentJSON, "model_not_found"},
		{"bad.json" + expectedSuffix, "", 404, contentJSON, "model_not_found"},
		{"broken.sse", "", 500, contentJSON, "recording_unreadable"},
	}
	for _, tt := range tests {
		var headers []string
		if tt.header != "" {
			headers = []string{replayHeader, tt.header}
		}
		resp := post(t, url, requestBody(tt.model, `,"stream":true`), headers...)
		body, err := io.ReadAll(resp.Body)
		exact := tt.status < 404
		if err != nil || resp.StatusCode != tt.status || resp.Header.Get("Content-Type") != tt.contentType ||
			exact && string(body) != tt.body || !strings.Contains(string(body), tt.body) {
			t.Errorf("%s: %d %v %q %v", tt.model, resp.StatusCode, resp.Header, body, err)
		}
	}
	var list struct{ Data []model }
	get(t, url+"/v1/models", http.StatusOK, &list)
	if len(list.Data) != 4 || list.Data[2].ID != "deep/two.json" {
		t.Errorf("%+v", list.Data)
	}
	get(t, url+"/v1/models/deep/two.json", http.StatusOK, &list.Data[0])
}

func TestReplayOneFile(t *testing.T) {
	url := start(t, Options{Replay: replay(t, filepath.Join(writeRecordings(t), "one.sse"))})
	resp := post(t, url, requestBody("whatever", ""))
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != recording {
		t.Errorf("%q %v", body, err)
	}
	afterTools := `{"model":"m","stream":true,"messages":[{"role":"user","content":"x"},{"role":"tool","tool_call_id":"c","content":"1"}]}`
	if got := readStream(t, post(t, url, afterTools).Body); got.text != ToolResultsText {
		t.Errorf("after tools: %+v", got)
	}
	// Faults of scripts apply to recordings too.
	resp = post(t, url, requestBody("m", `,"loquat_script":{"drop_after":2,"drop":"clean"}`))
	if body, _ := io.ReadAll(resp.Body); string(body) != ": hello\n\ndata: {\"a\": \"b: c\"}\n\n" {
		t.Errorf("dropped: %q", body)
	}
}

func TestOpenReplayErrors(t *testing.T) {
	dir := writeRecordings(t)
	for _, name := range []string{filepath.Join(dir, "absent"), filepath.Join(dir, "notes.txt")} {
		if _, err := OpenReplay(name); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestReframe(t *testing.T) {
	file := filepath.Join(writeRecordings(t), "one.sse")
	tests := []struct{ reframe, want string }{
		{"", recording},
		{"bytes", recording},
		{"crlf", strings.ReplaceAll(recording, "\n", "\r\n")},
		{"nonewline", strings.TrimSuffix(recording, "\n\n")},
		{"nospace", ": hello\n\ndata:{\"a\": \"b: c\"}\n\nevent:x\ndata:{\"é\":2}\n\ndata:[DONE]\n\n"},
		{"comments", ": a comment\n: hello\n\n: a comment\ndata: {\"a\": \"b: c\"}\n\n: a comment\nevent: x\n" +
			": a comment\ndata: {\"é\":2}\n\n: a comment\ndata: [DONE]\n\n"},
		{"crlf,nospace,bytes,nonewline", ": hello\r\n\r\ndata:{\"a\": \"b: c\"}\r\n\r\nevent:x\r\ndata:{\"é\":2}\r\n\r\ndata:[DONE]"},
	}
	for _, tt := range tests {
		r, err := ParseReframe(tt.reframe)
		if err != nil {
			t.Fatal(err)
		}
		script, err := json.Marshal(map[string]any{"reframe": r})
		if err != nil {
			t.Fatal(err)
		}
		url := start(t, Options{Replay: replay(t, file), Script: script})
		resp := post(t, url, requestBody("m", `,"stream":true`))
		body, err := io.ReadAll(resp.Body)
		if err != nil || string(body) != tt.want {
			t.Errorf("%s:\n%q\n%q\n%v", tt.reframe, body, tt.want, err)
		}
	}
	if _, err := ParseReframe("crlf,sideways"); err == nil || !strings.Contains(err.Error(), `"sideways"`) {
		t.Errorf("%v", err)
	}
}

func TestSplitEventsKeepsAllBytes(t *testing.T) {
	for _, s := range []string{"", "data: 1", recording, "\n\n", "a\r\n\r\nb\r\n\r\n"} {
		if got := bytes.Join(splitEvents([]byte(s)), nil); string(got) != s {
			t.Errorf("%q became %q", s, got)
		}
	}
}

// Every recording is replayed byte for byte. Reframing does not change its data.
func TestSharedRecordings(t *testing.T) {
	shared := os.Getenv("LOQUAT_SHARED")
	if shared == "" {
		shared = "../../../shared"
	}
	dir := filepath.Join(shared, "fixtures")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no recordings at %s (LOQUAT_SHARED)", dir)
	}
	r := replay(t, dir)
	url := start(t, Options{Replay: r})
	names, err := r.names()
	if err != nil || len(names) == 0 {
		t.Fatalf("%d recordings, %v", len(names), err)
	}
	for _, name := range names {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		resp := post(t, url, requestBody(name, `,"stream":true`))
		got, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(want), err)
		}
		if !strings.HasSuffix(name, ".sse") {
			continue
		}
		resp = post(t, url, requestBody(name, `,"stream":true,"loquat_script":{"reframe":["crlf","nospace","comments","nonewline"]}`))
		got, err = io.ReadAll(resp.Body)
		if err != nil || fmt.Sprint(readData(t, got)) != fmt.Sprint(readData(t, want)) {
			t.Errorf("%s: reframing changed the data (%v)", name, err)
		}
	}
	t.Logf("%d recordings", len(names))
}

func readData(t *testing.T, stream []byte) (list []string) {
	t.Helper()
	for e, err := range sse.Events(bytes.NewReader(stream), 8<<20) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == sse.Message {
			list = append(list, string(e.Data))
		}
	}
	return list
}
