package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// startLimited starts the real program with limits and one token, "user-token-for-tests".
func startLimited(t *testing.T, limits string) *process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "loquat.json")
	if err := os.WriteFile(file, []byte(`{"limits": `+limits+`,
		"server": {"auth_tokens": [{"name": "user", "token": "user-token-for-tests", "scope": "full"}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return startProcess(t, nil, "serve", "--demo", "--config", file, "--listen", "127.0.0.1:0", "--data", t.TempDir())
}

// Stalled connections do not keep a user out, and their number has a bound.
func TestStalledConnections(t *testing.T) {
	const bound, stalled = 32, 200
	p := startLimited(t, fmt.Sprintf(`{"max_connections_per_address": %d}`, bound))
	address := strings.TrimPrefix(p.url, "http://")
	user := &http.Client{Timeout: time.Minute}
	defer user.CloseIdleConnections()
	call := func() {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", p.url+"/sessions", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer user-token-for-tests")
		resp, err := user.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("the user gets %s", resp.Status)
		}
	}
	call()
	var conns []net.Conn
	for i := range stalled {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
		head := []string{"POST /auth/session", "POST /sessions", "GET /healthz", ""}[i%4]
		if head != "" {
			_, _ = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000\r\n\r\n", head, address)
		}
	}
	call()                      // on the connection that it has
	user.CloseIdleConnections() // on a new one
	call()
	open := 0
	for _, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		var buf [4096]byte
		for {
			_, err := conn.Read(buf[:])
			if err == nil {
				continue
			}
			if e, ok := err.(net.Error); ok && e.Timeout() {
				open++
			}
			break
		}
	}
	if open > bound {
		t.Errorf("%d of %d stalled connections are open, the bound is %d", open, stalled, bound)
	}
}
