package main

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat/internal/config"
	"loquat/internal/e2e/binary"
)

// lineCounter counts the lines of a log.
type lineCounter struct {
	mu    sync.Mutex
	count int
}

func (c *lineCounter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count += bytes.Count(p, []byte{'\n'})
	return len(p), nil
}

func (c *lineCounter) lines() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// Handshakes that fail, which anybody can bring about, do not fill the log.
func TestLogOfFailedHandshakes(t *testing.T) {
	dir := t.TempDir()
	cert, key := binary.SelfSigned(t, 1)
	binary.WriteFiles(t, dir, map[string]string{"cert.pem": cert, "key.pem": key})
	var log lineCounter
	cfg := config.New(nil, config.Environment{Lookup: func(string) (string, bool) { return "", false }})
	cfg.Server.TLS = config.TLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	address, stop := serveNothing(t, cfg, slog.New(slog.NewTextHandler(&log, nil)))
	before := log.lines() // what is said of the files
	const attempts = 300
	for range attempts {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
	}
	for end := time.Now().Add(20 * time.Second); log.lines() == before && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	stop()
	if got := log.lines() - before; got == 0 || got > 30 {
		t.Errorf("%d failed handshakes make %d lines", attempts, got)
	}
}

// serveNothing serves a handler that finds nothing, and returns its address and what ends it.
func serveNothing(t *testing.T, cfg *config.Config, log *slog.Logger) (address string, stop func()) {
	t.Helper()
	server, serve, _, err := newHTTPServer(http.NotFoundHandler(), config.NewLive(cfg), log)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = serve(ln) }()
	return ln.Addr().String(), func() { _ = server.Close(); <-ended }
}

// A connection can hold little memory before its request is known: thousands of connections may send headers that
// do not end.
func TestHeadersAreBounded(t *testing.T) {
	cfg := config.New(nil, config.Environment{Lookup: func(string) (string, bool) { return "", false }})
	address, stop := serveNothing(t, cfg, slog.New(slog.DiscardHandler))
	defer stop()
	for size, want := range map[int]int{48 << 10: http.StatusNotFound, 100 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Long", strings.Repeat("a", size))
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("headers of %d bytes: %s, want %d", size, resp.Status, want)
		}
	}
}
