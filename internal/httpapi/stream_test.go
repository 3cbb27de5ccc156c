package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
	"loquat/internal/feed"
	"loquat/internal/sse"
)

// follow reads a stream until it ends or enough says so, one line for each frame.
func (r *rig) follow(path string, enough func(line string) bool, headers ...string) []string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", r.server.URL+path, nil)
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
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("Cache-Control") != "no-store" {
		r.t.Fatalf("stream: %d %v", resp.StatusCode, resp.Header)
	}
	var out []string
	for ev, err := range sse.Events(resp.Body, 0) {
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

func TestStreamEndsWithTheService(t *testing.T) {
	r := newRig(t)
	began := time.Now()
	r.follow("/events/stream", func(string) bool { r.stop(); return false })
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// newStream is a stream over a function that brings windows.
func newStream(w io.Writer, flush func() error, next func(context.Context) (feed.Window, error)) *stream {
	return &stream{
		out: w, flush: flush, next: next,
		write: func(_ context.Context, w io.Writer, rec loquat.Record) error { return rec.WriteJSON(w, nil) },
	}
}

func record(id int) loquat.Record {
	return loquat.Record{ID: loquat.EventID(id), Body: []byte(`{"type":"checkpoint"}`)}
}

// TestHeartbeats counts the signs of life of streams in a minute of fake time.
func TestHeartbeats(t *testing.T) {
	over := errors.New("the minute is over")
	for name, pause := range map[string]time.Duration{"idle": time.Hour, "an event every 4 s": 4 * time.Second, "an event every 15 s": heartbeat} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				began, id := time.Now(), 0
				due := began.Add(pause)
				var s *stream
				s = newStream(&out, func() error { return nil }, func(context.Context) (feed.Window, error) {
					if time.Since(began) >= time.Minute {
						return feed.Window{}, over
					}
					if s.cursor != loquat.EventID(id) {
						t.Errorf("asks for events after %s, %d was sent", s.cursor, id)
					}
					if due.After(s.beat) {
						time.Sleep(time.Until(s.beat))
						return feed.Window{Cursor: loquat.EventID(id)}, nil
					}
					time.Sleep(time.Until(due))
					due = due.Add(pause)
					id++
					return feed.Window{Events: []loquat.Record{record(id)}}, nil
				})
				if err := s.run(t.Context()); err != over {
					t.Fatal(err)
				}
				if n := strings.Count(out.String(), "event: heartbeat\ndata: {}\n\n"); n != 4 {
					t.Errorf("%d heartbeats in a minute:\n%s", n, out.String())
				}
				if n := strings.Count(out.String(), "id: "); n != 1+id {
					t.Errorf("%d ids for %d events and the start", n, id)
				}
			})
		})
	}
}

// pipes is a listener whose connections are pipes, so that their deadlines are in
// fake time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// TestClientThatDoesNotRead checks that a client which stops reading after the head of a
// stream is disconnected, and that a slow client is not.
func TestClientThatDoesNotRead(t *testing.T) {
	for name, pause := range map[string]time.Duration{"never": time.Hour, "slowly": progressTimeout - time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, ended := time.Now(), make(chan error, 1)
				handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					w := &responseWriter{ResponseWriter: rw}
					id := 0
					s := newStream(w, w.FlushError, func(context.Context) (feed.Window, error) {
						id++
						return feed.Window{Events: []loquat.Record{record(id)}}, nil
					})
					ended <- s.run(r.Context())
				})
				ln := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
				server := &http.Server{Handler: handler}
				go server.Serve(ln)
				client, conn := net.Pipe()
				ln.conns <- conn
				fmt.Fprint(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				for range 10 {
					if _, err := client.Read(make([]byte, 4096)); err != nil {
						t.Fatalf("cut after %v: %v", time.Since(began), err)
					}
					if name == "never" {
						break
					}
					time.Sleep(pause)
				}
				time.Sleep(2 * progressTimeout)
				synctest.Wait()
				select {
				case err := <-ended:
					if err == nil {
						t.Error("the stream ended without an error")
					}
				default:
					t.Error("the stream still waits for its client")
				}
				client.Close()
				server.Close()
			})
		})
	}
}

// nowhere is a connection that takes everything.
type nowhere struct {
	http.ResponseWriter
	writes, bytes int
	deadlines     []time.Time
}

func (n *nowhere) WriteHeader(int)     {}
func (n *nowhere) Header() http.Header { return http.Header{} }
func (n *nowhere) FlushError() error   { return nil }
func (n *nowhere) SetWriteDeadline(at time.Time) error {
	n.deadlines = append(n.deadlines, at)
	return nil
}
func (n *nowhere) Write(b []byte) (int, error) {
	n.writes++
	n.bytes += len(b)
	return len(b), nil
}

// A stream writes the events of a window at once, and the frames that all followers share
// without a copy of its own.
func TestWritesOfAStream(t *testing.T) {
	for events := range 5 {
		var window []loquat.Record
		size := 0
		for i := range events {
			window = append(window, record(i+1))
		}
		loquat.ShareFrames(window)
		for i := range window {
			size += len(window[i].Frame())
		}
		conn := &nowhere{}
		s := newStream(&responseWriter{ResponseWriter: conn}, conn.FlushError, nil)
		buf := make([]loquat.Record, events)
		n := testing.AllocsPerRun(100, func() {
			conn.writes, conn.bytes = 0, 0
			copy(buf, window)
			if err := s.sendEvents(t.Context(), buf); err != nil {
				t.Fatal(err)
			}
		})
		if conn.bytes != size || conn.writes != min(events, 1) || int(s.cursor) != events {
			t.Errorf("%d events of %d bytes: %d bytes in %d writes, up to %s", events, size, conn.bytes, conn.writes, s.cursor)
		}
		if n != 0 {
			t.Errorf("%d events cost %v allocations", events, n)
		}
	}
}

// However often a stream writes, it moves its deadline once a second, and the deadline is
// never less than progressTimeout away.
func TestDeadlinesOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &nowhere{}
		w := &responseWriter{ResponseWriter: conn}
		const seconds = 10
		for range 100 * seconds {
			if _, err := w.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if left := time.Until(conn.deadlines[len(conn.deadlines)-1]); left < progressTimeout || left > progressTimeout+deadlineSlack {
				t.Fatalf("the deadline is %s away", left)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(conn.deadlines); n > seconds {
			t.Errorf("the deadline moved %d times in %d s", n, seconds)
		}
	})
}
