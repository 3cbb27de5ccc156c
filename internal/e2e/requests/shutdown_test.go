package requests_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// stoppable is a server whose backend is another process, on a data directory that
// outlives it.
type stoppable struct {
	t      *testing.T
	config string
	data   string
}

func newStoppable(t *testing.T, grace float64) *stoppable {
	t.Helper()
	backend := binary.Start(t, nil, "backend", "--listen", "127.0.0.1:0")
	s := &stoppable{t: t, config: filepath.Join(t.TempDir(), "loquat.json"), data: t.TempDir()}
	text := fmt.Sprintf(`{"server": {"shutdown_grace_seconds": %v},
		"providers": {"main": {"provider": "reference_generic_compatible", "model": "echo", "base_url": "%s/v1"}}}`, grace, backend.URL)
	binary.WriteFile(t, s.config, text)
	return s
}

func (s *stoppable) args() []string {
	return []string{"serve", "--config", s.config, "--listen", "127.0.0.1:0", "--data", s.data}
}

func (s *stoppable) start() (*binary.Process, *client.Client) {
	s.t.Helper()
	p := binary.Start(s.t, nil, s.args()...)
	c, err := client.New(p.URL, client.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.CloseIdleConnections)
	return p, c
}

// scriptedSession creates a session whose requests carry a script for the backend.
func scriptedSession(ctx context.Context, t *testing.T, c *client.Client, script string) string {
	t.Helper()
	overrides := json.RawMessage(fmt.Sprintf(`{"request_options": {"loquat_script": %s}}`, script))
	s, err := c.CreateSession(ctx, loquat.NewSession{Metadata: loquat.Object{}.Set("overrides", overrides)})
	if err != nil {
		t.Fatal(err)
	}
	return s.SessionID
}

func mustSend(ctx context.Context, t *testing.T, c *client.Client, session, content, onBusy string) string {
	t.Helper()
	sent, err := c.Send(ctx, session, loquat.Send{Content: &content, Stream: new(true), OnBusy: onBusy})
	if err != nil {
		t.Fatal(err)
	}
	return sent.RequestID
}

func hasStatus(ctx context.Context, c *client.Client, request string, want loquat.RequestStatus) func() bool {
	return func() bool {
		q, err := c.Request(ctx, request)
		return err == nil && q.Status == want
	}
}

// A signal ends the program in order: nothing new starts, what runs gets its time, what
// is left ends as interrupted, and what waits starts the next time.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := newStoppable(t, 2)
	p, c := s.start()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	quick := scriptedSession(ctx, t, c, `{"text": "one two three four five", "rate": 4}`)
	stuck := scriptedSession(ctx, t, c, `{"text": "one two three", "attempts": [{"stall_after": 2}, {}]}`)
	finishes, left := mustSend(ctx, t, c, quick, "go", ""), mustSend(ctx, t, c, stuck, "go", "")
	waits, waitsToo := mustSend(ctx, t, c, quick, "later", "queue"), mustSend(ctx, t, c, stuck, "later", "queue")
	binary.Eventually(t, "the text", func() bool {
		since := loquat.EventID(0)
		w, err := c.Events(ctx, client.Query{RequestID: left, Since: &since, OmitSession: true})
		return err == nil && strings.Contains(string(binary.MustJSON(t, w.Events)), "two")
	})

	began := time.Now()
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	binary.Eventually(t, "/readyz to say so", func() bool { return binary.Readiness(t, p.URL) == http.StatusServiceUnavailable })
	resp, err := http.Post(p.URL+"/sessions/"+quick+"/send", "application/json", strings.NewReader(`{"content": "new", "on_busy": "queue"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a send during the shutdown: %d", resp.StatusCode)
	}
	if code := p.Stopped(t); code != binary.ExitOK {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(began); took < 2*time.Second || took > 10*time.Second {
		t.Errorf("it took %v, with 2 s of grace", took)
	}

	_, c = s.start()
	for id, want := range map[string]loquat.RequestStatus{
		finishes: loquat.StatusCompleted, left: loquat.StatusFailed, waits: loquat.StatusCompleted, waitsToo: loquat.StatusCompleted,
	} {
		binary.Eventually(t, fmt.Sprintf("request %s to be %s", id, want), hasStatus(ctx, c, id, want))
	}
	for session, want := range map[string]string{
		quick: "user:go | assistant:one two three four five | user:later | assistant:one two three four five",
		stuck: "user:go | assistant:one two (interrupted) | user:later | assistant:one two three",
	} {
		if got := (&canceller{Client: c, t: t, ctx: ctx, session: loquat.Snapshot{Session: loquat.Session{SessionID: session}}}).transcript(); got != want {
			t.Errorf("messages %s\nwant     %s", got, want)
		}
	}
}

// A signal that comes while the program takes up what the last run left ends it in
// order too, and the next start does the rest.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	s := newStoppable(t, 0.1)
	p, c := s.start()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var requests []string
	for range 20 {
		session := scriptedSession(ctx, t, c, `{"stall_after": 1}`)
		requests = append(requests, mustSend(ctx, t, c, session, "go", ""), mustSend(ctx, t, c, session, "later", "queue"))
	}
	if err := p.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.Stopped(t)

	path, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{0, 2, 5, 10, 20, 50} {
		p, err := binary.Launch(path, nil, s.args()...)
		if err != nil {
			t.Fatal(err)
		}
		binary.Eventually(t, "a first word", func() bool { return p.Log.String() != "" })
		time.Sleep(after * time.Millisecond)
		if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := p.Stopped(t); code != binary.ExitOK {
			t.Errorf("a signal %v ms after the first word: exit code %d\n%s", int64(after), code, p.Log)
		}
	}
	_, c = s.start()
	for i, id := range requests {
		if i%2 == 0 {
			binary.Eventually(t, "the end of what ran", hasStatus(ctx, c, id, loquat.StatusFailed))
			continue
		}
		if _, err := c.Cancel(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range requests {
		since := loquat.EventID(0)
		w, err := c.Events(ctx, client.Query{RequestID: id, Since: &since, OmitSession: true})
		if err != nil {
			t.Fatal(err)
		}
		ends := 0
		for _, e := range w.Events {
			if e.Type == loquat.RequestCompleted {
				ends++
			}
		}
		if ends > 1 {
			t.Errorf("request %s has %d ends", id, ends)
		}
	}
}
