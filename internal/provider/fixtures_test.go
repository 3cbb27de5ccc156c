package provider_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"loquat"
	"loquat/internal/provider"
	"loquat/internal/provider/providertest"
)

// expected holds the results of an independent decoder for a recording.
type expected struct {
	Kind      string
	Model     string
	Text      string
	Reasoning string
	Fields    []string                               `json:"reasoning_fields"`
	ToolCalls []struct{ ID, Name, Arguments string } `json:"tool_calls"`
	Usage     json.RawMessage
	Finish    string `json:"finish_reason"`
	Error     json.RawMessage
	Status    int            `json:"http_status"`
	Extra     map[string]int `json:"extra_delta_fields"`
	Terminal  string
}

// outcome holds the results of a complete Chat.
type outcome struct {
	chunks    []loquat.Chunk
	text      string
	reasoning string
	reply     *loquat.Reply
	err       error
	retries   []loquat.Retry
}

func drain(t *testing.T, p *provider.Provider, ctx context.Context, req loquat.LLMRequest) outcome {
	t.Helper()
	var o outcome
	for c, err := range p.Chat(ctx, req) {
		o.take(t, c, err)
	}
	return o
}

func (o *outcome) take(t *testing.T, c loquat.Chunk, err error) {
	t.Helper()
	if o.err != nil || o.reply != nil {
		t.Errorf("a chunk after the end: %+v", c)
	}
	if c.Restarted {
		o.text, o.reasoning = "", ""
	}
	if c.Retry != nil {
		o.retries = append(o.retries, *c.Retry)
		return
	}
	o.text, o.reasoning = o.text+c.Text, o.reasoning+c.Reasoning+c.ReasoningContent
	o.chunks = append(o.chunks, c)
	o.reply, o.err = c.Reply, err
}

// sharedDir returns the directory of the recordings that are not part of the project.
func sharedDir(t testing.TB, sub string) string {
	dir := os.Getenv("LOQUAT_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared")
	}
	dir = filepath.Join(dir, sub)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no recordings at %s (LOQUAT_SHARED)", dir)
	}
	return dir
}

// framings lists ways to send the same stream.
var framings = map[string]func(string) string{
	"as recorded": func(s string) string { return s },
	"crlf":        func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
	"cr":          func(s string) string { return strings.ReplaceAll(s, "\n", "\r") },
	"no space": func(s string) string {
		return strings.ReplaceAll("\n"+s, "\ndata: ", "\ndata:")[1:]
	},
	"comments": func(s string) string {
		return ": hello\n\n" + strings.ReplaceAll(s, "\n\n", "\n\n: ping\n\ndata: : keepalive\n\ndata:\n\n")
	},
	"no last newline": func(s string) string { return strings.TrimRight(s, "\n") },
	"byte order mark": func(s string) string { return "\ufeff" + s },
}

func TestRecordings(t *testing.T) {
	dir := sharedDir(t, "fixtures")
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("only %d recordings", len(files))
	}
	var bodies atomic.Pointer[recorded]
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { bodies.Load().serve(w) }))
	defer srv.Close()
	p := provider.New(provider.Options{Transport: srv.Client().Transport})
	for _, file := range files {
		name, _ := filepath.Rel(dir, strings.TrimSuffix(file, ".expected.json"))
		t.Run(name, func(t *testing.T) {
			body, err := os.ReadFile(strings.TrimSuffix(file, ".expected.json"))
			if err != nil {
				t.Fatal(err)
			}
			want := readExpected(t, file)
			rec := recorded{status: want.Status, contentType: "application/json", body: body}
			if want.Kind == "stream" {
				rec.contentType = "text/event-stream"
				for how, frame := range framings {
					framed := rec
					framed.body = []byte(frame(string(body)))
					bodies.Store(&framed)
					check(t, how, want, drain(t, p, t.Context(), loquat.LLMRequest{ProviderID: "main", Config: providertest.Config(srv.URL), Messages: providertest.UserSays("hi"), Stream: true}))
				}
				if len(body) < 30_000 {
					rec.byBytes = true
				}
			}
			for _, stream := range []bool{true, false} {
				bodies.Store(&rec)
				o := drain(t, p, t.Context(), loquat.LLMRequest{ProviderID: "main", Config: providertest.Config(srv.URL), Messages: providertest.UserSays("hi"), Stream: stream})
				if !stream && o.reply != nil {
					o.text, o.reasoning = want.Text, want.Reasoning // only the reply holds the text
				}
				if !stream && o.err != nil {
					continue // the text before an error in a stream is not shown
				}
				check(t, fmt.Sprintf("stream: %v", stream), want, o)
			}
		})
	}
}

// recorded holds an answer to replay.
type recorded struct {
	status      int
	contentType string
	body        []byte
	byBytes     bool
}

func (r *recorded) serve(w http.ResponseWriter) {
	w.Header().Set("Content-Type", r.contentType)
	w.WriteHeader(r.status)
	if !r.byBytes {
		w.Write(r.body)
		return
	}
	for i := range r.body {
		w.Write(r.body[i : i+1])
		http.NewResponseController(w).Flush()
	}
}

func readExpected(t *testing.T, file string) expected {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var want expected
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	return want
}

func check(t *testing.T, how string, want expected, o outcome) {
	t.Helper()
	if len(want.Error) > 0 && string(want.Error) != "null" {
		checkError(t, how, want, o)
		return
	}
	if o.err != nil {
		t.Errorf("%s: %v", how, o.err)
		return
	}
	r := o.reply
	if o.text != want.Text || r.Content != want.Text {
		t.Errorf("%s: text\n got %q\nreply %q\nwant %q", how, o.text, r.Content, want.Text)
	}
	var said string
	for _, f := range []string{"reasoning_content", "reasoning"} {
		said += r.Metadata.String(f)
	}
	if o.reasoning != want.Reasoning || said != want.Reasoning {
		t.Errorf("%s: reasoning\n got %q\nreply %q\nwant %q", how, o.reasoning, said, want.Reasoning)
	}
	checkCalls(t, how, want, r)
	checkMetadata(t, how, want, r)
}

func checkCalls(t *testing.T, how string, want expected, r *loquat.Reply) {
	t.Helper()
	if len(r.ToolCalls) != len(want.ToolCalls) {
		t.Errorf("%s: calls %+v, want %+v", how, r.ToolCalls, want.ToolCalls)
		return
	}
	for i, w := range want.ToolCalls {
		g := r.ToolCalls[i]
		if g.Name != w.Name || g.Arguments != w.Arguments || g.ID == "" || w.ID != "" && g.ID != w.ID {
			t.Errorf("%s: call %d is %+v, want %+v", how, i, g, w)
		}
	}
}

func checkMetadata(t *testing.T, how string, want expected, r *loquat.Reply) {
	t.Helper()
	if !providertest.SameJSON(r.Metadata["usage"], want.Usage) {
		t.Errorf("%s: usage %s, want %s", how, r.Metadata["usage"], want.Usage)
	}
	if want.Finish != "" && r.FinishReason != want.Finish {
		t.Errorf("%s: finish %q, want %q", how, r.FinishReason, want.Finish)
	}
	if want.Model != "" && r.Metadata.String("model") != want.Model {
		t.Errorf("%s: model %s, want %q", how, r.Metadata["model"], want.Model)
	}
	for key := range want.Extra {
		if _, ok := r.Metadata[key]; !ok {
			t.Errorf("%s: %s was lost", how, key)
		}
	}
}

func checkError(t *testing.T, how string, want expected, o outcome) {
	t.Helper()
	if loquat.CodeOf(o.err) != loquat.CodeBackendError {
		t.Errorf("%s: error is %v", how, o.err)
		return
	}
	var reported loquat.Object
	if err := json.Unmarshal(want.Error, &reported); err != nil {
		t.Fatalf("%s: %v", how, err)
	}
	said := cmp.Or(reported.String("message"), reported.String("detail"))
	if said == "" || !strings.Contains(o.err.(*loquat.Error).Detail, said) {
		t.Errorf("%s: %v does not say %q", how, o.err, said)
	}
	if o.text != want.Text {
		t.Errorf("%s: text before the error %q, want %q", how, o.text, want.Text)
	}
	if want.Usage != nil && string(want.Usage) != "null" && !providertest.SameJSON(o.reply.Metadata["usage"], want.Usage) {
		t.Errorf("%s: usage beside the error is lost", how)
	}
}
