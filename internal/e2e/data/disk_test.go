package data_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// smallDisk is a file system of its own; the test is skipped where none may be mounted.
func smallDisk(t *testing.T, size string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput()
	if err != nil {
		t.Skipf("a file system to fill cannot be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// fill leaves no room in dir and returns the file to remove for some.
func fill(t *testing.T, dir string) (ballast string) {
	t.Helper()
	ballast = filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{64 << 10, 4 << 10, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	return ballast
}

// postOnce posts without any repeats.
func postOnce(t *testing.T, url, content string) (status int, body string) {
	t.Helper()
	resp, err := http.Post(url, contentType(content), strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return binary.AnswerOf(t, resp)
}

// appendOnce appends a message without any repeats and returns the status.
func appendOnce(t *testing.T, url, session, content string) (status int, body string) {
	t.Helper()
	return postOnce(t, url+"/sessions/"+session+"/messages", fmt.Sprintf(`{"role": "user", "content": %q}`, content))
}

// lastingBackend streams replies that last until finish is closed, and then go on for a
// while. sent counts those that are through.
type lastingBackend struct {
	*httptest.Server
	finish chan struct{}
	sent   atomic.Int64
}

func newLastingBackend(t *testing.T) *lastingBackend {
	b := &lastingBackend{finish: make(chan struct{})}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		finish := b.finish
		for n, left := 0, 200; left > 0; n++ {
			fmt.Fprintf(w, `data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"part %d, "},"finish_reason":null}]}`+"\n\n", n)
			w.(http.Flusher).Flush()
			select {
			case <-tick.C:
			case <-finish:
				finish = nil
			case <-r.Context().Done():
				return
			}
			if finish == nil {
				left--
			}
		}
		fmt.Fprint(w, `data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
		b.sent.Add(1)
	}))
	t.Cleanup(b.Close)
	return b
}

// A full disk refuses changes and holds up streams, loses nothing, and is over when
// there is room again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	const streams = 5
	disk := smallDisk(t, "40m")
	backend := newLastingBackend(t)
	serve := func() *binary.Process {
		cfg := fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "lasting", "base_url": "%s/v1"}}}`, backend.URL)
		path := binary.WriteConfig(t, cfg)
		return binary.Start(t, nil, "serve", "--config", path, "--listen", "127.0.0.1:0", "--data", disk)
	}
	server := serve()
	c, err := client.New(server.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	notes, err := c.CreateSession(ctx, loquat.NewSession{})
	if err != nil {
		t.Fatal(err)
	}
	var acknowledged []string
	for i := range 60 { // the write-ahead log outgrows what it is copied back at
		content := fmt.Sprint("early ", i, strings.Repeat(" x", 20_000))
		if status, body := appendOnce(t, server.URL, notes.SessionID, content); status != http.StatusCreated {
			t.Fatalf("append %d: %d %.300s", i, status, body)
		}
		acknowledged = append(acknowledged, content)
	}
	var sessions []loquat.Snapshot
	var requests []string
	for range streams {
		s, err := c.CreateSession(ctx, loquat.NewSession{})
		if err != nil {
			t.Fatal(err)
		}
		content := "go"
		sent, err := c.Send(ctx, s.SessionID, loquat.Send{Content: &content, Stream: new(true)})
		if err != nil {
			t.Fatal(err)
		}
		sessions, requests = append(sessions, s), append(requests, sent.RequestID)
	}
	ballast := fill(t, disk)
	refused := ""
	// The file still has room for small changes where a large one was refused. The index for searches
	// is written in the background, and may make room once more.
	for _, words := range []int{20_000, 1, 20_000, 1} {
		refused = ""
		time.Sleep(500 * time.Millisecond)
		for i := 0; refused == ""; i++ {
			content := fmt.Sprint(i, strings.Repeat(" x", words))
			switch status, body := appendOnce(t, server.URL, notes.SessionID, content); {
			case status == http.StatusCreated && i < 1000:
				acknowledged = append(acknowledged, content)
			case status == http.StatusServiceUnavailable:
				refused = body
			default:
				t.Fatalf("append %d on a full disk: %d %.300s", i, status, body)
			}
		}
	}
	if !strings.Contains(refused, `"code":"unavailable"`) {
		t.Errorf("the refusal is %s", refused)
	}
	if got := binary.Readiness(t, server.URL); got != http.StatusServiceUnavailable {
		t.Errorf("/readyz is %d on a full disk", got)
	}
	close(backend.finish)
	binary.Eventually(t, "all of the streams to be sent", func() bool { return backend.sent.Load() == streams })
	for _, id := range requests {
		if q, err := c.Request(ctx, id); err != nil || q.Status != loquat.StatusRunning {
			t.Errorf("a request on a full disk is %s, %v", q.Status, err)
		}
	}
	if s, err := c.Session(ctx, notes.SessionID); err != nil || len(s.Messages) != len(acknowledged) {
		t.Errorf("reading on a full disk: %d messages, want %d, %v", len(s.Messages), len(acknowledged), err)
	}
	complaints := strings.Count(server.Log.String(), "copied back")

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	binary.Eventually(t, "the server to be ready", func() bool { return binary.Readiness(t, server.URL) == http.StatusOK })
	for i, id := range requests {
		binary.Eventually(t, "a stream to end", func() bool {
			q, err := c.Request(ctx, id)
			return err == nil && q.Status.Ended()
		})
		checkStreamed(ctx, t, c, sessions[i], id)
	}
	if complaints > 1 {
		t.Errorf("the log complains %d times:\n%.3000s", complaints, server.Log)
	}

	server.End(t)
	server = serve()
	if c, err = client.New(server.URL, client.Options{}); err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	s, err := c.Session(ctx, notes.SessionID)
	if err != nil || len(s.Messages) != len(acknowledged) {
		t.Fatalf("after a restart: %d messages, want %d, %v", len(s.Messages), len(acknowledged), err)
	}
	for i, m := range s.Messages {
		if m.Content != acknowledged[i] {
			t.Errorf("message %d is %.20q, want %.20q", i, m.Content, acknowledged[i])
		}
	}
}

// checkStreamed compares what a follower of a request gets with what is stored.
func checkStreamed(ctx context.Context, t *testing.T, c *client.Client, from loquat.Snapshot, requestID string) {
	t.Helper()
	q, err := c.Request(ctx, requestID)
	if err != nil || q.Status != loquat.StatusCompleted {
		t.Errorf("the request is %s (%s), %v", q.Status, q.Error, err)
	}
	stored, err := c.Session(ctx, from.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	fold := loquat.NewFold(from)
	since := from.CursorEventID
	for {
		w, err := c.Events(ctx, client.Query{SessionID: from.SessionID, Since: &since, OmitSession: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Events) == 0 {
			break
		}
		for _, e := range w.Events {
			fold.Apply(e)
			since = e.EventID
		}
	}
	if got := binary.MustJSON(t, fold.Messages()); len(stored.Messages) != 2 || !binary.SameJSON(got, binary.MustJSON(t, stored.Messages)) {
		t.Errorf("it folds to %.300s\nstored is %.300s", got, binary.MustJSON(t, stored.Messages))
	}
}

// A server that starts on a full disk serves what is there, refuses changes, says so, and
// goes on by itself when there is room; after a stop and after a kill.
func TestStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*binary.Process){
		"after a stop": func(p *binary.Process) { p.End(t) },
		"after a kill": func(p *binary.Process) { p.Kill(t) },
		"after a kill, without the index": func(p *binary.Process) {
			p.Kill(t)
			if err := os.Remove(filepath.Join(p.Data(), "loquat.db-shm")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk := smallDisk(t, "20m")
			serve := []string{"serve", "--demo", "--listen", "127.0.0.1:0", "--data", filepath.Join(disk, "data")}
			server := binary.Start(t, nil, serve...)
			if status, body := postOnce(t, server.URL+"/sessions", `{"session_id": "notes", "messages": [{"role": "user", "content": "before"}]}`); status != http.StatusCreated {
				t.Fatalf("%d %s", status, body)
			}
			image := binary.Photo(1, 1<<10)
			a, status, err := upload(t.Context(), server.URL, "notes", bytes.NewReader(image))
			if err != nil || status != http.StatusCreated {
				t.Fatalf("%d %v", status, err)
			}
			end(server)
			ballast := fill(t, disk)

			server = binary.Start(t, nil, serve...)
			for range 3 { // reads work while the server looks whether there is room
				if status, body := binary.GetOnce(t, server.URL+"/sessions/notes"); status != http.StatusOK || !strings.Contains(body, "before") {
					t.Errorf("reading: %d %s", status, body)
				}
				if status, body := binary.GetOnce(t, server.URL+"/events?since_id=0"); status != http.StatusOK || !strings.Contains(body, "session_created") {
					t.Errorf("events: %d %s", status, body)
				}
				if status, body := binary.GetOnce(t, server.URL+"/sessions/notes/assets/"+a.AssetID); status != http.StatusOK || body != string(image) {
					t.Errorf("an image: %d, %d bytes", status, len(body))
				}
				if status, body := appendOnce(t, server.URL, "notes", "lost"); status != http.StatusServiceUnavailable || !strings.Contains(body, "the disk is full") || !strings.Contains(body, `"code":"unavailable"`) {
					t.Errorf("a change: %d %s", status, body)
				}
				time.Sleep(time.Second)
			}
			if status, body := binary.GetOnce(t, server.URL+"/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "the disk is full; make room") {
				t.Errorf("/readyz: %d %s", status, body)
			}
			if n := strings.Count(server.Log.String(), "level=ERROR"); n == 0 || n > 2 {
				t.Errorf("the log has %d errors:\n%s", n, server.Log)
			}
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			binary.Eventually(t, "the server to be ready", func() bool { return binary.Readiness(t, server.URL) == http.StatusOK })
			if status, body := appendOnce(t, server.URL, "notes", "after"); status != http.StatusCreated {
				t.Errorf("a change with room: %d %s", status, body)
			}
			server.End(t)
			if code, out, said := checkData(t, filepath.Join(disk, "data"), "--full"); code != binary.ExitOK || !strings.Contains(out, "1 session, 2 messages") {
				t.Errorf("exit code %d\n%s%s", code, out, said)
			}
			left, err := filepath.Glob(filepath.Join(disk, "data", "loquat.*"))
			if err != nil || len(left) != 3 {
				t.Errorf("there is %v, %v", left, err)
			}
		})
	}
}

// A data directory that cannot be used is named, and the program ends.
func TestDataDirectoryThatCannotBeUsed(t *testing.T) {
	readOnly := smallDisk(t, "1m")
	if out, err := exec.Command("mount", "-o", "remount,ro", readOnly).CombinedOutput(); err != nil {
		t.Skipf("%v: %s", err, out)
	}
	full := smallDisk(t, "64k")
	fill(t, full)
	used := t.TempDir()
	first := binary.Start(t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", used)
	for _, c := range []struct{ name, dir, says string }{
		{"read-only", readOnly, "read-only"},
		{"below a read-only one", filepath.Join(readOnly, "data"), "read-only"},
		{"full", full, "disk is full"},
		{"in use", used, "process " + strconv.Itoa(first.Cmd.Process.Pid)},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, said := binary.Exit(t, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", c.dir)
			if code != binary.ExitFailure || !strings.Contains(said, c.dir) || !strings.Contains(said, c.says) {
				t.Errorf("exit code %d, said\n%s\nwant %d, and %s and %q in it", code, said, binary.ExitFailure, c.dir, c.says)
			}
		})
	}
	if got := binary.Readiness(t, first.URL); got != http.StatusOK {
		t.Errorf("the server that has the directory: /readyz is %d", got)
	}
}

func contentType(content string) string {
	if strings.HasPrefix(content, "{") {
		return "application/json"
	}
	return http.DetectContentType([]byte(content))
}
