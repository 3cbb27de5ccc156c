package httpapi_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
	"loquat/internal/httpapi"
)

// If a body does not arrive, the client gets an answer in bounded time on every kind of
// route, and the connection is closed soon afterwards.
func TestStalledBodiesAreCut(t *testing.T) {
	r := newRig(t)
	const slow = 20 * time.Second // between two bytes of a body that drips
	tests := []struct {
		name, request string
		drip          bool
		status        int
		within        time.Duration // from the request to the answer
	}{
		{"health", "GET /healthz", false, 200, httpapi.Bounds.SettleTime},
		{"unknown route", "POST /nowhere", false, 404, httpapi.Bounds.SettleTime},
		{"wrong method", "PUT /sessions", false, 405, httpapi.Bounds.SettleTime},
		{"a redirect of the mux", "POST /x/../sessions", false, 404, httpapi.Bounds.SettleTime},
		{"body of a call that has none", "GET /sessions", false, 200, httpapi.Bounds.SettleTime},
		{"a stream that ends", "GET /events/stream?session_id=none", false, 200, httpapi.Bounds.SettleTime},
		{"sign in", "POST /auth/session", false, 400, httpapi.Bounds.OpenBodyTimeout},
		{"sign in, dripping", "POST /auth/session", true, 400, httpapi.Bounds.OpenBodyTimeout},
		{"a change", "POST /sessions", false, 400, httpapi.Bounds.BodySilence},
		{"a change, dripping", "POST /sessions", true, 400, httpapi.Bounds.BodyTimeout},
		{"an upload", "POST /sessions/s/assets", false, 400, httpapi.Bounds.BodySilence},
	}
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	for _, tt := range tests {
		for _, framing := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
			t.Run(tt.name+", "+framing, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client := httpapi.ServePipe(t, r.handler)
					began := time.Now()
					fmt.Fprintf(client, "%s HTTP/1.1\r\nHost: app.example\r\n%s\r\n\r\n", tt.request, framing)
					if tt.drip {
						var dripping sync.WaitGroup
						done := make(chan struct{})
						defer dripping.Wait()
						defer close(done)
						dripping.Go(func() {
							for {
								select {
								case <-time.After(slow):
								case <-done:
									return
								}
								piece := "1\r\n \r\n"
								if strings.HasPrefix(framing, "Content-Length") {
									piece = " "
								}
								if _, err := io.WriteString(client, piece); err != nil {
									return
								}
							}
						})
					}
					_ = client.SetReadDeadline(began.Add(10 * time.Minute))
					in := bufio.NewReader(client)
					resp, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Fatalf("no answer after %s: %v", time.Since(began), err)
					}
					if took := time.Since(began); resp.StatusCode != tt.status || took > tt.within+httpapi.Bounds.SettleTime {
						t.Errorf("answer %d after %s, want %d within %s", resp.StatusCode, took, tt.status, tt.within)
					}
					answered := time.Now()
					_, _ = io.Copy(io.Discard, in)
					if took := time.Since(answered); took > httpapi.Bounds.LingerTime+time.Second {
						t.Errorf("the connection ends %s after the answer", took)
					}
				})
			})
		}
	}
}

// writeThenRead sends a request like clients do that read only when they have written all,
// Python's http.client for instance.
func (r *rig) writeThenRead(head string, body io.Reader) (*http.Response, error) {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.server.Listener.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprintf(conn, "%s\r\nHost: %s\r\n\r\n", head, r.server.Listener.Addr()); err != nil {
		return nil, err
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{conn}, body, make([]byte, 64<<10)); err != nil {
		return nil, fmt.Errorf("write the body: %w", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return resp, nil
}

// A client that writes its whole body before it reads gets the answer that refuses the
// body, not a broken pipe.
func TestRefusedBodiesAreAnswered(t *testing.T) {
	r := newRig(t)
	const size = 9 << 20
	length := fmt.Sprintf("\r\nContent-Type: application/json\r\nContent-Length: %d", size)
	for _, tt := range []struct {
		name, head string
		status     int
	}{
		{"announced", "POST /sessions HTTP/1.1" + length, 413},
		{"chunked", "POST /sessions HTTP/1.1\r\nTransfer-Encoding: chunked", 413},
		{"without a token", "POST /auth/session HTTP/1.1" + length, 413},
		{"an image", "POST /sessions/s/assets HTTP/1.1" + length, 413},
		{"unknown route", "POST /nowhere HTTP/1.1" + length, 404},
		{"wrong token, chunked", "POST /sessions HTTP/1.1\r\nAuthorization: Bearer wrong\r\nTransfer-Encoding: chunked", 401},
		{"foreign origin", "POST /sessions HTTP/1.1\r\nOrigin: https://evil.example" + length, 403},
		{"HTTP/1.0", "POST /sessions HTTP/1.0" + length, 413},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 4 {
				body := io.LimitReader(zeros{}, size)
				if strings.Contains(tt.head, "chunked") {
					var chunks bytes.Buffer
					for range size / 65536 {
						fmt.Fprintf(&chunks, "10000\r\n%s\r\n", strings.Repeat("0", 65536))
					}
					chunks.WriteString("0\r\n\r\n")
					body = &chunks
				}
				resp, err := r.writeThenRead(tt.head, body)
				if err != nil {
					t.Fatal(err)
				}
				if resp.StatusCode != tt.status {
					t.Errorf("the answer is %s, want %d", resp.Status, tt.status)
				}
			}
		})
	}
}

// zeros is a body without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// What is read on after an answer is bounded in bytes and in time.
func TestReadingOnIsBounded(t *testing.T) {
	r := newRig(t)
	synctest.Test(t, func(t *testing.T) {
		client := httpapi.ServePipe(t, r.handler)
		ended := make(chan int64, 1)
		go func() {
			fmt.Fprintf(client, "POST /auth/session HTTP/1.1\r\nHost: app.example\r\nContent-Length: %d\r\n\r\n", int64(1)<<40)
			n, _ := io.Copy(client, io.LimitReader(zeros{}, 1<<30))
			ended <- n
		}()
		resp, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Fatalf("%v, %v", resp, err)
		}
		if n := <-ended; n < httpapi.Bounds.LingerBytesOpen || n > httpapi.Bounds.LingerBytesOpen+1<<20 {
			t.Errorf("%d bytes of the body were read, want about %d", n, httpapi.Bounds.LingerBytesOpen)
		}
	})
}

// A client that waits for 100 Continue does not get it if its body will be refused.
func TestRefusedBodiesAreNotAskedFor(t *testing.T) {
	r := newRig(t)
	synctest.Test(t, func(t *testing.T) {
		client := httpapi.ServePipe(t, r.handler)
		fmt.Fprintf(client, "POST /sessions HTTP/1.1\r\nHost: app.example\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", 1<<30)
		began := time.Now()
		_ = client.SetReadDeadline(began.Add(10 * time.Minute))
		all, err := io.ReadAll(client)
		if err != nil || !bytes.HasPrefix(all, []byte("HTTP/1.1 413 ")) || time.Since(began) > time.Second {
			t.Errorf("after %s, %v: %q", time.Since(began), err, all)
		}
	})
}

// The connection of a refused call can be used again when its body is small.
func TestRefusalsKeepConnections(t *testing.T) {
	r := newRig(t)
	conn, err := net.Dial("tcp", r.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for i := range 3 {
		fmt.Fprintf(conn, "POST /nowhere HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n\r\n{}", conn.RemoteAddr())
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		body, _ := io.ReadAll(resp.Body)
		if resp.Close || !bytes.Contains(body, []byte(loquat.CodeNotFound)) {
			t.Errorf("call %d: the connection closes: %v, %s", i, resp.Close, body)
		}
	}
}
