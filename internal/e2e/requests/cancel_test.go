package requests_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// cancelCase is a phase of a request in which it is cancelled.
type cancelCase struct {
	name     string
	settings string // of the provider, in addition to the usual ones
	script   string // of the backend
	whole    bool   // the request does not stream
	requests int    // that the backend has seen when the time has come
	until    func(story string) bool
	story    string // all events of the request, but for partials
	messages string
}

const (
	cancelledAtOnce = "request_started request_cancelled request_completed"
	cancelledOpen   = "request_started assistant_message:start assistant_message:end final checkpoint request_cancelled request_completed"
)

var cancelCases = []cancelCase{
	{
		name: "waiting to retry a status", settings: `"retry_on_status": {"503": [300]}`,
		script: `{"attempts": [{"status": 503}, {}]}`, requests: 1, until: has("retry_scheduled"),
		story:    "request_started retry_scheduled request_cancelled request_completed",
		messages: "user:go",
	},
	{
		name: "waiting as Retry-After says", settings: `"rate_limit_retry_delays_seconds": [0.01]`,
		script: `{"attempts": [{"status": 429, "retry_after": 300}, {}]}`, requests: 1, until: has("retry_scheduled"),
		story:    "request_started retry_scheduled request_cancelled request_completed",
		messages: "user:go",
	},
	{
		name: "waiting for the headers", script: `{"delay_ms": 300000}`, requests: 1, until: has("request_started"),
		story: cancelledAtOnce, messages: "user:go",
	},
	{
		name: "waiting for the first byte", script: `{"first_byte_delay_ms": 300000}`, requests: 1, until: has("request_started"),
		story: cancelledAtOnce, messages: "user:go",
	},
	{
		name: "streaming", script: `{"text": "one two three", "stall_after": 2}`, requests: 1, until: has("two"),
		story: cancelledOpen, messages: "user:go | assistant:one two (cancelled)",
	},
	{
		name: "streaming reasoning", script: `{"reasoning": "hm hm hm", "text": "x", "stall_after": 2}`, requests: 1, until: has("hm"),
		story: cancelledOpen, messages: "user:go | assistant: (cancelled)",
	},
	{
		name: "reading a whole answer", script: `{"stall_after": 1}`, whole: true, requests: 1, until: has("request_started"),
		story: cancelledAtOnce, messages: "user:go",
	},
	{
		name:   "in the phase after a round of tools",
		script: `{"tool_calls": [{"name": "nowhere"}], "attempts": [{}, {"delay_ms": 300000}, {"delay_ms": 0}]}`, requests: 2, until: has("tool_results"),
		story: "request_started assistant_message:start assistant_message:end final checkpoint tool_calls tool_results checkpoint " +
			"request_cancelled request_completed",
		messages: `user:go | assistant: | tool:there is no tool named "nowhere"`,
	},
	{
		name: "recovering a stream", settings: `"stream_recovery": {"mode": "aggressive"}`,
		script: `{"text": "one two three", "attempts": [{"drop_after": 2}, {"delay_ms": 300000}, {}]}`, requests: 2, until: has("retry_scheduled"),
		story: "request_started assistant_message:start retry_scheduled assistant_message:end final checkpoint " +
			"request_cancelled request_completed",
		messages: "user:go | assistant:one two (cancelled)",
	},
}

func has(word string) func(string) bool {
	return func(story string) bool { return strings.Contains(story, word) }
}

// In every phase a cancel closes the connection to the backend, keeps what was visible,
// gives the request exactly one end, and leaves the session fit for the next request.
func TestCancelInEveryPhase(t *testing.T) {
	for _, c := range cancelCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url := binary.ScriptedBackend(t, backend.Options{})
			r := newCanceller(t, url, c.settings, c.script)
			sent := r.send("go", loquat.Send{Stream: new(!c.whole)})
			r.await("the phase", func() bool {
				return c.until(r.story(sent.RequestID, true)) && len(asked(t, url)) == c.requests
			})
			r.cancel(sent.RequestID)
			r.ends(sent.RequestID, c.story, c.messages)
			r.await("the backend to see it", func() bool {
				all := asked(t, url)
				last := all[len(all)-1]
				return last.Ended != nil && (last.End == backend.EndClientClosed || last.Status >= 400)
			})
			if n := len(asked(t, url)); n != c.requests {
				t.Errorf("the backend was asked %d times, want %d", n, c.requests)
			}
			r.goesOn(c.messages)
		})
	}
}

func TestCancelWhileQueued(t *testing.T) {
	t.Parallel()
	url := binary.ScriptedBackend(t, backend.Options{})
	r := newCanceller(t, url, "", `{"text": "one two three", "stall_after": 2}`)
	running := r.send("go", loquat.Send{Stream: new(true)})
	r.await("the text", func() bool { return strings.Contains(r.story(running.RequestID, true), "two") })
	queued := r.send("later", loquat.Send{Stream: new(true), OnBusy: "queue"})
	r.cancel(queued.RequestID)
	if got := r.story(queued.RequestID, false); got != cancelledAtOnce {
		t.Errorf("events %s", got)
	}
	if q, err := r.Request(r.ctx, running.RequestID); err != nil || q.Status != loquat.StatusRunning {
		t.Errorf("the request before it is %s, %v", q.Status, err)
	}
	r.cancel(running.RequestID)
	r.ends(running.RequestID, cancelledOpen, "user:go | assistant:one two (cancelled)")
	r.goesOn("user:go | assistant:one two (cancelled)")
	if n := len(asked(t, url)); n != 2 {
		t.Errorf("the backend was asked %d times, want 2", n)
	}
}

func TestCancelWhilePacing(t *testing.T) {
	t.Parallel()
	url := binary.ScriptedBackend(t, backend.Options{})
	r := newCanceller(t, url, `"min_request_interval_seconds": 2`, `{"text": "x"}`)
	first := r.send("go", loquat.Send{})
	r.await("the first", func() bool { return strings.Contains(r.story(first.RequestID, false), "request_completed") })
	paced := r.send("again", loquat.Send{})
	r.cancel(paced.RequestID)
	r.ends(paced.RequestID, cancelledAtOnce, "user:go | assistant:x | user:again")
	if n := len(asked(t, url)); n != 1 {
		t.Errorf("the backend was asked %d times, want 1", n)
	}
	r.goesOn("user:go | assistant:x | user:again")
}

// A backend whose connections nobody accepts is a host that does not answer.
func TestCancelWhileConnecting(t *testing.T) {
	t.Parallel()
	ln := deafListener(t)
	r := newCanceller(t, "http://"+ln.Addr().String(), "", `{}`)
	sent := r.send("go", loquat.Send{Stream: new(true)})
	r.await("the start", func() bool { return strings.Contains(r.story(sent.RequestID, false), "request_started") })
	time.Sleep(50 * time.Millisecond) // for the dial; the test holds without it too
	r.cancel(sent.RequestID)
	r.ends(sent.RequestID, cancelledAtOnce, "user:go")
	binary.ServeScripted(t, backend.Options{}, ln)
	r.goesOn("user:go")
}

// deafListener is a listener whose backlog is full: connecting to it hangs until
// somebody accepts.
func deafListener(t *testing.T) net.Listener {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	ln, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	for range 10 {
		conn, err := net.DialTimeout("tcp", ln.Addr().String(), 100*time.Millisecond)
		if err != nil {
			return ln // full
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Skip("this system accepts connections beyond a listener's backlog")
	return nil
}

// canceller is a session on a server of its own.
type canceller struct {
	*client.Client
	t       *testing.T
	ctx     context.Context
	url     string
	session loquat.Snapshot
}

// newCanceller starts a server for a backend, with further settings of the provider and
// further keys of the configuration; script is what its session asks of the backend.
func newCanceller(t *testing.T, backendURL, settings, script string, keys ...string) *canceller {
	t.Helper()
	if settings != "" {
		settings = ", " + settings
	}
	more := ""
	for _, k := range keys {
		more += ", " + k
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r := &canceller{t: t, ctx: ctx}
	r.url, r.Client = binary.ServerAt(t, fmt.Sprintf(
		`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1"%s}}%s}`, backendURL, settings, more))
	overrides := fmt.Sprintf(`{"request_options": {"loquat_script": %s}}`, script)
	var err error
	r.session, err = r.CreateSession(ctx, loquat.NewSession{Metadata: loquat.Object{}.Set("overrides", json.RawMessage(overrides))})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *canceller) send(content string, s loquat.Send) loquat.SendResult {
	r.t.Helper()
	s.Content = &content
	sent, err := r.Send(r.ctx, r.session.SessionID, s)
	if err != nil {
		r.t.Fatal(err)
	}
	return sent
}

func (r *canceller) cancel(requestID string) {
	r.t.Helper()
	out, err := r.Cancel(r.ctx, requestID)
	if err != nil || out.RequestID != requestID {
		r.t.Fatalf("cancel: %+v, %v", out, err)
	}
}

// story writes the events of a request in short, with or without its partials.
func (r *canceller) story(requestID string, partials bool) string {
	r.t.Helper()
	since := r.session.CursorEventID
	var out []string
	for range 1000 {
		w, err := r.Events(r.ctx, client.Query{SessionID: r.session.SessionID, RequestID: requestID, Since: &since, OmitSession: true})
		if err != nil {
			r.t.Fatal(err)
		}
		if len(w.Events) == 0 {
			break
		}
		for _, e := range w.Events {
			since = e.EventID
			s := string(e.Type)
			if e.Phase != "" {
				s += ":" + e.Phase
			}
			switch {
			case e.Type != loquat.Partial:
				out = append(out, s)
			case partials:
				out = append(out, fmt.Sprintf("partial(%s%s)", e.Message.Metadata.String(loquat.MetaReasoningContent), e.Message.Content))
			}
		}
	}
	return strings.Join(out, " ")
}

// ends waits for the end of a request and checks how it came to it.
func (r *canceller) ends(requestID, story, messages string) {
	r.t.Helper()
	r.await("the end", func() bool { return strings.Contains(r.story(requestID, false), "request_completed") })
	if got := r.story(requestID, false); got != story {
		r.t.Errorf("events\n%s\nwant\n%s", got, story)
	}
	if q, err := r.Request(r.ctx, requestID); err != nil || q.Status != loquat.StatusCancelled || q.EndedAt == nil {
		r.t.Errorf("the request is %+v, %v", q, err)
	}
	if out, err := r.Cancel(r.ctx, requestID); err != nil || out.Status != loquat.StatusCancelled {
		r.t.Errorf("a cancel after the end: %+v, %v", out, err)
	}
	if got := r.transcript(); got != messages {
		r.t.Errorf("messages %s\nwant     %s", got, messages)
	}
}

// goesOn checks that the next request of the session is not harmed.
func (r *canceller) goesOn(before string) {
	r.t.Helper()
	overrides := loquat.Object{}.Set("overrides", json.RawMessage(`{"model": "echo", "request_options": null}`))
	if _, err := r.UpdateSession(r.ctx, r.session.SessionID, loquat.SessionPatch{Metadata: overrides}); err != nil {
		r.t.Fatal(err)
	}
	sent := r.send("and now?", loquat.Send{Stream: new(true)})
	r.await("the next request", func() bool { return strings.Contains(r.story(sent.RequestID, false), "request_completed") })
	if got, want := r.transcript(), before+" | user:and now? | assistant:and now?"; got != want {
		r.t.Errorf("messages after the next request %s\nwant %s", got, want)
	}
}

func (r *canceller) transcript() string {
	r.t.Helper()
	s, err := r.Session(r.ctx, r.session.SessionID)
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, m := range s.Messages {
		line := m.Role + ":" + strings.TrimSpace(m.Content)
		if why := m.Metadata.String(loquat.MetaIncomplete); why != "" {
			line += " (" + why + ")"
		}
		out = append(out, line)
	}
	return strings.Join(out, " | ")
}

func (r *canceller) await(what string, ok func() bool) {
	r.t.Helper()
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("waited in vain for %s", what)
}

// asked is what the scripted backend says it was asked.
func asked(t *testing.T, url string) []backend.Entry {
	t.Helper()
	resp, err := http.Get(url + "/_requests")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out struct{ Requests []backend.Entry }
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out.Requests
}
