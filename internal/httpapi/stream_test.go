package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
	"loquat/internal/feed"
)

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
				client := ServePipe(t, handler)
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
