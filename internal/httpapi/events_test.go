package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/httpapi"
	"loquat/internal/sse"
	"loquat/internal/store"
)

// follow reads a stream until it ends or enough says so, one line for each frame.
func (r *rig) follow(path string, enough func(line string) bool, headers ...string) []string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	body := r.open(ctx, path, headers...)
	defer body.Close()
	var out []string
	for ev, err := range sse.Events(body, 0) {
		if err != nil {
			r.t.Fatalf("stream: %v after %q", err, out)
		}
		line := fmt.Sprintf("%s %s%s", ev.ID, ev.Name, ev.Data)
		out = append(out, line)
		if enough(line) {
			return out
		}
	}
	return out
}

// open opens a stream.
func (r *rig) open(ctx context.Context, path string, headers ...string) io.ReadCloser {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.server.URL+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("Cache-Control") != "no-store" {
		resp.Body.Close()
		r.t.Fatalf("stream: %d %v", resp.StatusCode, resp.Header)
	}
	return resp.Body
}

func holds(s string) func(string) bool {
	return func(line string) bool { return strings.Contains(line, s) }
}

func never(string) bool { return false }

func TestStream(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	go func() {
		for range 3 {
			r.parrot.gate <- struct{}{}
		}
	}()
	r.do("POST", "/sessions/s/send", `{"content":"hi","request_id":"q"}`).want(t, 202)
	live := r.follow("/events/stream?session_id=s&since_id=0000000000000000&session=omit", holds("request_completed"))
	if live[0] != "0000000000000000 " {
		t.Errorf("the stream opens with %q", live[0])
	}
	for _, line := range live[1:] {
		id, data, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(data, `{"event_id":"`+id+`","type":"`) || strings.Contains(data, `"session":`) {
			t.Errorf("frame %s", line)
		}
	}
	newest := strings.Fields(live[len(live)-1])[0]
	last := strings.Fields(live[len(live)-2])[0]
	resumed := r.follow("/events/stream?session_id=s&session=omit&since_id=0000000000000000", holds("request_completed"), "Last-Event-ID: "+last)
	if len(resumed) != 2 || resumed[0] != last+" " || resumed[1] != live[len(live)-1] {
		t.Errorf("resumed from %s: %q", last, resumed)
	}
	fromNow := r.follow("/events/stream", func(string) bool { return true })
	if fromNow[0] != newest+" " {
		t.Errorf("starts at %q, the newest event is %s", fromNow, newest)
	}
	ofRequest := r.follow("/events/stream?request_id=q", holds("request_completed"))
	if !strings.Contains(ofRequest[1], "request_started") {
		t.Errorf("a request's stream begins with %q", ofRequest[1])
	}
}

func TestStreamOfWhatIsGone(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"?session_id=none", "?request_id=none", "?since_id=0999999999999999"} {
		got := r.follow("/events/stream"+path, never)
		if len(got) != 1 || !strings.HasPrefix(got[0], ` gone{"code":"`) {
			t.Errorf("%s: %q", path, got)
		}
	}
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	deleted := false
	got := r.follow("/events/stream?session_id=s&session=omit", func(string) bool {
		if !deleted {
			deleted = true
			r.do("DELETE", "/sessions/s", "").want(t, 204)
		}
		return false
	})
	if len(got) != 3 || !strings.Contains(got[1], "session_deleted") || !strings.Contains(got[2], "gone{") {
		t.Errorf("a session that is deleted meanwhile: %q", got)
	}
	if head := r.do("HEAD", "/events/stream", ""); head.StatusCode != 200 {
		t.Errorf("HEAD: %d", head.StatusCode)
	}
}

// A stream stays open while the log cannot be read, and goes on with the first event that it
// could not show.
func TestStreamWhileTheLogCannotBeRead(t *testing.T) {
	db := &httpapi.Unreadable{}
	r := newRigOn(t, func(d store.Driver) store.Driver { db.Driver = d; return db }, func(*httpapi.Options) {})
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	began, shown := false, 0
	got := r.follow("/events/stream?session_id=s", func(line string) bool {
		if !began {
			began = true
			db.Fails.Store(true)
			r.do("POST", "/sessions/s/messages", `{"role":"user","content":"while it fails"}`)
			time.AfterFunc(time.Second, func() { db.Fails.Store(false) })
		}
		if strings.Contains(line, "checkpoint") {
			shown++
		}
		return shown == 1
	})
	if len(got) != 3 || !strings.Contains(got[1], "message_appended") || !strings.Contains(got[1], `"while it fails"`) {
		t.Errorf("the stream shows %q", got)
	}
}

func TestStreamEndsWithTheService(t *testing.T) {
	r := newRig(t)
	began := time.Now()
	r.follow("/events/stream", func(string) bool { r.stop(); return false })
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// The bounds reach clients as problems that name them.
func TestTooManyFollowers(t *testing.T) {
	r := newRigWith(t, func(opts *httpapi.Options) {
		few := *opts.Config.Now()
		few.Limits.MaxFollowersPerToken = 2
		opts.Config = config.NewLive(&few)
	})
	for range 2 {
		r.stream()
	}
	for _, path := range []string{"/events/stream", "/events?since_id=0000000000000000"} {
		p := r.do("GET", path, "").wantProblem(t, http.StatusTooManyRequests, loquat.CodeRateLimited)
		if !strings.Contains(p.Detail, "limits.max_followers_per_token") {
			t.Errorf("%s: %q", path, p.Detail)
		}
	}
}
