package requests_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/e2e/binary"
)

// forever writes the same again and again, until nobody listens.
func forever(begin, again string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", binary.EventStream)
		_, err := io.WriteString(w, begin)
		for block := bytes.Repeat([]byte(again), 1+(32<<10)/len(again)); err == nil; {
			_, err = w.Write(block)
		}
	}
}

// answers sends a body of some type.
func answers(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	}
}

// onTheWire writes raw bytes to the connection instead of an HTTP answer. It first reads the
// whole request; otherwise the client might fail while it still writes.
func onTheWire(speak func(net.Conn)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			panic(err)
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		speak(conn)
	}
}

// A backend that lies, or never stops, meets a bound each time: the request ends with
// an error that says which, little memory is used, and the server goes on.
func TestHostileBackends(t *testing.T) {
	for _, c := range []struct {
		name    string
		backend http.HandlerFunc
		whole   bool   // the request does not stream
		detail  string // of the error; "" is none
		text    string // that is kept
		timeout int    // in seconds; 0 is ample
		limit   int    // max_response_bytes; 0 is more than one event may have
	}{
		{name: "a web page", backend: answers("text/html", "<html><body>Welcome to nginx!</body></html>"), detail: "Welcome to nginx"},
		{name: "plain text", backend: answers("text/plain", "hello"), detail: "ended early"},
		{name: "nothing", backend: answers(binary.EventStream, ""), detail: "ended early"},
		{name: "a stream that says it is JSON", backend: answers("application/json", binary.SSEText("fine")+binary.SSEStop), text: "fine"},
		{name: "a stream that says it is a picture", backend: answers("image/png", binary.SSEText("fine")+binary.SSEStop), text: "fine"},
		{name: "a stream where none was asked for", backend: answers(binary.EventStream, binary.SSEText("fine")+binary.SSEStop), whole: true, text: "fine"},
		{name: "headers without end", backend: onTheWire(func(conn net.Conn) {
			_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
			for line := []byte("X-Filler: " + strings.Repeat("x", 4000) + "\r\n"); err == nil; {
				_, err = conn.Write(line)
			}
		}), detail: "headers exceeded"},
		{name: "preliminary answers without end", backend: onTheWire(func(conn net.Conn) {
			var err error
			for err == nil {
				_, err = io.WriteString(conn, "HTTP/1.1 102 Processing\r\n\r\n")
			}
		}), detail: "connection to the backend failed"},
		{name: "no HTTP", backend: onTheWire(func(conn net.Conn) {
			_, _ = io.WriteString(conn, "220 mail.example ESMTP\r\n")
		}), detail: "malformed HTTP"},
		{name: "a length that is not kept", backend: onTheWire(func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"+binary.SSEText("half"))
		}), detail: "connection broke", text: "half"},
		{name: "a chunk length that is none", backend: onTheWire(func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n")
		}), detail: "ended early|connection broke|connection to the backend failed"},
		{name: "a line without end", backend: forever("data: ", "x"), detail: "event too large"},
		{name: "an event without end", backend: forever("", "data: x\n"), detail: "event too large"},
		{name: "a JSON without end", backend: forever(`{"choices":[{"message":{"content":"`, "x"), whole: true, detail: "max_response_bytes"},
		{name: "comments without end", backend: forever("", ": ping\n\n"), detail: "max_response_bytes", limit: 4 << 20},
		{name: "blank lines without end", backend: forever("", "\n"), detail: "max_response_bytes", limit: 4 << 20},
		{name: "text without end", backend: forever("", binary.SSEText(strings.Repeat("x", 8<<10))), detail: "max_response_bytes", text: "x", limit: 4 << 20},
		{name: "text after the end, without end", backend: forever(binary.SSEText("fine")+binary.SSEStop, binary.SSEText("x")), text: "fine"},
		{name: "silence", backend: func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, binary.SSEText("half"))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, detail: "silent for too long", text: "half", timeout: 1},
		{name: "an error without end", backend: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			forever("it broke ", "!")(w, r)
		}, detail: "500 Internal Server Error: it broke"},
		{name: "a million tool calls", backend: func(w http.ResponseWriter, _ *http.Request) {
			for i := range 1_000_000 {
				if _, err := fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":%d,\"id\":\"c%d\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}\n\n", i, i); err != nil {
					return
				}
			}
		}, detail: "more than 1024 tool calls"},
		{name: "indices that are none", backend: func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if bytes.Contains(body, []byte(`"role":"tool"`)) {
				_, _ = io.WriteString(w, binary.SSEText("fine")+binary.SSEStop)
				return
			}
			for _, i := range []string{"-1", "-9223372036854775808", "9223372036854775807", "1e99", `"x"`, "null"} {
				fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":%s,\"id\":\"c%s\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}\n\n", i, strings.Trim(i, `"`))
			}
			_, _ = io.WriteString(w, binary.SSEStop)
		}, text: "fine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			settings := fmt.Sprintf(`"timeout": %d`, cmp.Or(c.timeout, 30))
			limits := fmt.Sprintf(`"limits": {"max_response_bytes": %d}`, cmp.Or(c.limit, 40<<20))
			srv := httptest.NewServer(c.backend)
			t.Cleanup(srv.CloseClientConnections)
			r := newCanceller(t, srv.URL, settings, `{}`, limits)
			peak := watchHeap(t, r.url)
			sent := r.send("go", loquat.Send{Stream: new(!c.whole)})
			r.await("the end", func() bool {
				q, err := r.Request(r.ctx, sent.RequestID)
				return err == nil && q.Status.Ended()
			})
			if used := peak(); used > 300<<20 {
				t.Errorf("%d MiB of memory were used", used>>20)
			}
			q, err := r.Request(r.ctx, sent.RequestID)
			if err != nil {
				t.Fatal(err)
			}
			if c.detail == "" && q.Status != loquat.StatusCompleted || c.detail != "" && (q.Status != loquat.StatusFailed || !containsOne(q.Error, c.detail)) {
				t.Errorf("the request is %s: %.300s\nwant %q", q.Status, q.Error, c.detail)
			}
			if len(q.Error) > 8<<10 {
				t.Errorf("the error has %d bytes", len(q.Error))
			}
			s, err := r.Session(r.ctx, r.session.SessionID)
			if err != nil {
				t.Fatal(err)
			}
			last := s.Messages[len(s.Messages)-1]
			if got := last.Content; (last.Role == loquat.RoleAssistant) != (c.text != "") || c.text != "" && !strings.HasPrefix(got, c.text) {
				t.Errorf("what is kept is %s %.100q, want %q", last.Role, got, c.text)
			}
		})
	}
}

func containsOne(s, alternatives string) bool {
	for want := range strings.SplitSeq(alternatives, "|") {
		if strings.Contains(s, want) {
			return true
		}
	}
	return false
}

// watchHeap samples the heap of the server at url until the function that it returns is
// called. That function returns by how many bytes the heap grew.
func watchHeap(t *testing.T, url string) (peak func() uint64) {
	inUse := func() uint64 { return uint64(binary.Metrics(t, url)["go_memstats_heap_inuse_bytes"]) }
	before, highest := inUse(), uint64(0)
	if before == 0 {
		t.Fatal("the server does not report its heap")
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			highest = max(highest, inUse())
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() uint64 {
		close(stop)
		<-done
		return highest - min(before, highest)
	}
}
