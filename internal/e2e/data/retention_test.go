package data_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// Events older than events.retention_seconds are removed, and a client that would miss one
// gets 410. A session's cursor always works, and a running request keeps all of its events.
func TestRetention(t *testing.T) {
	retention := 2
	if testing.Short() {
		retention = 1
	}
	backend := binary.Start(t, nil, "backend", "--listen", "127.0.0.1:0")
	text := fmt.Sprintf(`{"events": {"retention_seconds": %d}, "providers": {"main": {"provider": "reference_generic_compatible", "model": "echo", "base_url": "%s/v1"}}}`, retention, backend.URL)
	file := binary.WriteConfig(t, text)
	server := binary.Start(t, nil, "serve", "--config", file, "--listen", "127.0.0.1:0", "--data", t.TempDir())
	c, err := client.New(server.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	begin, err := c.Events(ctx, client.Query{})
	if err != nil {
		t.Fatal(err)
	}
	early := begin.LatestEventID
	ended := binary.CreateSession(ctx, t, c, nil)
	binary.FollowRequest(ctx, t, c, sendText(ctx, t, c, ended.SessionID, "hello"))
	slow := binary.CreateSession(ctx, t, c, map[string]any{"request_options": map[string]any{"loquat_script": map[string]any{"chunks": 15 + 20*retention, "rate": 10, "chunk_bytes": 8}}})
	running := sendText(ctx, t, c, slow.SessionID, "take your time")

	awaitGone(ctx, t, c, client.Query{Since: &early})
	checkGone(ctx, t, c, server.URL, early, ended.SessionID)
	followWhatRuns(ctx, t, c, slow, running)
	if testing.Short() {
		return
	}

	// The rest of the second request is due now as well, up to the cursors.
	awaitGone(ctx, t, c, client.Query{Since: &slow.CursorEventID, SessionID: slow.SessionID})
	for range 3 {
		for _, id := range []string{ended.SessionID, slow.SessionID} {
			s, err := c.Session(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Events(ctx, client.Query{Since: &s.CursorEventID, SessionID: id}); err != nil {
				t.Fatalf("from the cursor of session %s: %v", id, err)
			}
		}
		time.Sleep(time.Second / 2)
	}
}

func sendText(ctx context.Context, t *testing.T, c *client.Client, session, text string) (requestID string) {
	t.Helper()
	sent, err := c.Send(ctx, session, loquat.Send{Content: &text, Stream: new(true)})
	if err != nil {
		t.Fatal(err)
	}
	return sent.RequestID
}

// awaitGone polls until what is asked for is gone.
func awaitGone(ctx context.Context, t *testing.T, c *client.Client, q client.Query) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		_, err := c.Events(ctx, q)
		if loquat.CodeOf(err) == loquat.CodeGone {
			return
		}
		if err != nil || time.Since(began) > 20*time.Second {
			t.Fatalf("%v after %s it is: %v", q, time.Since(began), err)
		}
	}
}

// checkGone asks for what was removed, by poll and by stream, of all and of one session.
func checkGone(ctx context.Context, t *testing.T, c *client.Client, url string, since loquat.EventID, session string) {
	t.Helper()
	for _, query := range []string{"since_id=" + since.String(), "session_id=" + session + "&since_id=" + since.String()} {
		status, body := getBody(ctx, t, url+"/events?"+query)
		if status != http.StatusGone || !bytes.Contains(body, []byte(`"code":"gone"`)) {
			t.Errorf("poll of %s: %d %s", query, status, body)
		}
		status, body = getBody(ctx, t, url+"/events/stream?"+query)
		if status != http.StatusOK || !bytes.Contains(body, []byte("event: gone\n")) {
			t.Errorf("stream of %s: %d %s", query, status, body)
		}
	}
	for _, err := range c.Follow(ctx, client.Query{Since: &since, SessionID: session}) {
		if loquat.CodeOf(err) != loquat.CodeGone {
			t.Errorf("a follower gets %v", err)
		}
		break
	}
}

func getBody(ctx context.Context, t *testing.T, url string) (int, []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body) // a stream that is gone ends
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

func hasEnded(ctx context.Context, t *testing.T, c *client.Client, request string) bool {
	t.Helper()
	q, err := c.Request(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	return q.Status.Ended()
}

// followWhatRuns asks again and again for all of a request that takes longer than
// events are kept. Each answer folds to what came before it or more.
func followWhatRuns(ctx context.Context, t *testing.T, c *client.Client, from loquat.Snapshot, request string) {
	t.Helper()
	for asked, longest := 0, 0; ; asked++ {
		all, err := c.Events(ctx, client.Query{RequestID: request})
		if loquat.CodeOf(err) == loquat.CodeGone && asked >= 3 && hasEnded(ctx, t, c, request) {
			return // most of it was due long ago and went with the first cleanup after the end
		}
		if err != nil {
			t.Fatalf("poll %d of the running request: %v", asked, err)
		}
		f := loquat.NewFold(from)
		for _, e := range all.Events {
			f.Apply(e)
		}
		last := all.Events[len(all.Events)-1].Type
		if first := all.Events[0].Type; first != loquat.RequestStarted {
			t.Fatalf("poll %d begins with %s", asked, first)
		}
		if last == loquat.RequestCompleted {
			if asked < 3 {
				t.Errorf("the request ended after %d polls", asked)
			}
			return
		}
		if d := f.Draft(); d != nil {
			if len(d.Content) < longest {
				t.Fatalf("the reply shrank from %d to %d bytes", longest, len(d.Content))
			}
			longest = len(d.Content)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
