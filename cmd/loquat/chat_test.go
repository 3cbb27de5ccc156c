package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/tui"
)

// slowServer plays a server whose only request streams until it is cancelled, and,
// when deaf, goes on even then.
type slowServer struct {
	deaf      bool
	streaming chan struct{} // closed when a client follows
	cancelled chan struct{} // closed by a cancel
	cancels   atomic.Int32
}

func (s *slowServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/sessions":
		io.WriteString(w, `{"session_id":"s"}`)
	case "/sessions/s/send":
		io.WriteString(w, `{"request_id":"r","session_id":"s","status":"running"}`)
	case "/requests/r/cancel":
		if s.cancels.Add(1) == 1 {
			close(s.cancelled)
		}
		io.WriteString(w, `{"request_id":"r","status":"running"}`)
	case "/events/stream":
		s.follow(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *slowServer) follow(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	s.event(w, 1, `"type":"partial","message":{"role":"assistant","content":"Half a"}`)
	close(s.streaming)
	select {
	case <-s.cancelled:
	case <-r.Context().Done():
		return
	}
	if s.deaf {
		<-r.Context().Done()
		return
	}
	s.event(w, 2, `"type":"final","messages":[{"id":"m","role":"assistant","content":"Half a","metadata":{"incomplete":"cancelled"}}]`)
	s.event(w, 3, `"type":"request_cancelled"`)
	s.event(w, 4, `"type":"request_completed"`)
}

func (s *slowServer) event(w http.ResponseWriter, id loquat.EventID, fields string) {
	fmt.Fprintf(w, "id: %s\ndata: {\"event_id\":\"%s\",\"session_id\":\"s\",\"request_id\":\"r\",%s}\n\n", id, id, fields)
	_ = http.NewResponseController(w).Flush()
}

// The first interrupt cancels the request through the API and waits for its end;
// the second does not wait.
func TestInterrupts(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprintf("deaf %v", deaf), func(t *testing.T) {
			played := &slowServer{deaf: deaf, streaming: make(chan struct{}), cancelled: make(chan struct{})}
			server := httptest.NewServer(played)
			defer server.Close()
			defer server.CloseClientConnections()
			c, err := client.New(server.URL, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.CloseIdleConnections()
			interrupts := make(chan os.Signal)
			var stdout, stderr strings.Builder
			talk := &conversation{client: c, stream: true, interrupts: interrupts, prompt: io.Discard, stderr: io.Discard,
				view: tui.NewRenderer(tui.NewScreen(&stdout, tui.Look{}), tui.NewScreen(&stderr, tui.Look{}))}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			go func() {
				<-played.streaming
				interrupts <- os.Interrupt
				if deaf {
					<-played.cancelled
					interrupts <- os.Interrupt
				}
			}()
			if err := talk.ask(ctx, "hello"); !errors.Is(err, errCancelled) {
				t.Errorf("ask = %v, want %v", err, errCancelled)
			}
			if n := played.cancels.Load(); n != 1 {
				t.Errorf("%d cancels were sent, want 1", n)
			}
			if want := "Half a\n"; !deaf && stdout.String() != want {
				t.Errorf("stdout has %q, want %q", stdout.String(), want)
			}
		})
	}
}

// A client that follows a session on a real server ends with the server's session.
func TestFollowRealServer(t *testing.T) {
	ctx := t.Context()
	opts := serveOptions{listen: "127.0.0.1:0", data: t.TempDir(), demo: true}
	url, stop, err := startServer(ctx, opts, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c, err := client.New(url, client.Options{Patience: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	s, err := c.CreateSession(ctx, loquat.NewSession{})
	if err != nil {
		t.Fatal(err)
	}
	text := "hello"
	drafts := 0
	for u, err := range c.FollowSession(ctx, s.SessionID) {
		if err != nil {
			t.Fatal(err)
		}
		if u.Event == nil {
			if _, err := c.Send(ctx, s.SessionID, loquat.Send{Content: &text, Stream: new(true)}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if u.State.Draft() != nil {
			drafts++
		}
		if u.Event.Type == loquat.RequestCompleted {
			whole, err := c.Session(ctx, s.SessionID)
			if err != nil {
				t.Fatal(err)
			}
			if got := u.State.Messages(); len(got) != 2 || !reflect.DeepEqual(got, whole.Messages) || drafts == 0 {
				t.Errorf("after %d drafts the state has %+v, the server %+v", drafts, got, whole.Messages)
			}
			break
		}
	}
}

func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{"http://h:1": "http://h:1", "my data": `'my data'`, "it's": `'it'\''s'`} {
		if got := shellWord(in); got != want {
			t.Errorf("shellWord(%q) = %s, want %s", in, got, want)
		}
	}
}

// Every command and every example of docs/cli.md is real: commands are those that
// there are, and examples are lines of the scripts.
func TestReferenceOfCommands(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range commands() {
		if !cmd.Hidden && !strings.Contains(string(doc), "## loquat "+cmd.Name()+"\n") {
			t.Errorf("docs/cli.md does not tell of %s", cmd.Name())
		}
	}
	var scripts strings.Builder
	files, err := os.ReadDir("testdata/script")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile("testdata/script/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		scripts.Write(b)
	}
	examples := regexp.MustCompile(`(?m)^\$ (loquat .*)$`).FindAllStringSubmatch(string(doc), -1)
	if len(examples) == 0 {
		t.Fatalf("docs/cli.md has %d examples", len(examples))
	}
	for _, example := range examples {
		if !strings.Contains(scripts.String(), "exec "+example[1]+"\n") {
			t.Errorf("no script runs the example %q", example[1])
		}
	}
}
