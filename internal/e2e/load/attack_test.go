package load_test

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"

	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/e2e/binary"
)

// startLimited starts the real program with limits and one token, "user-token-for-tests".
func startLimited(t *testing.T, limits string) *binary.Process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "loquat.json")
	if err := os.WriteFile(file, []byte(`{"limits": `+limits+`,
		"server": {"auth_tokens": [{"name": "user", "token": "user-token-for-tests", "scope": "full"}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return binary.Start(t, nil, "serve", "--demo", "--config", file, "--listen", "127.0.0.1:0", "--data", t.TempDir())
}

// Stalled connections do not keep a user out, and their number has a bound.
func TestStalledConnections(t *testing.T) {
	const bound, stalled = 32, 200
	p := startLimited(t, fmt.Sprintf(`{"max_connections_per_address": %d}`, bound))
	address := strings.TrimPrefix(p.URL, "http://")
	user := &http.Client{Timeout: time.Minute}
	defer user.CloseIdleConnections()
	call := func() {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", p.URL+"/sessions", strings.NewReader("{}"))
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

// Clients that do not read their streams and polls cost a bounded amount of memory, and
// users go on.
func TestClientsThatDoNotRead(t *testing.T) {
	const clients, messages, size, maxMemory = 200, 90, 100 << 10, 512 << 20
	p := startLimited(t, `{}`)
	a := attack{t: t, url: p.URL, client: &http.Client{Timeout: time.Minute}}
	defer a.client.CloseIdleConnections()
	var session loquat.Session
	a.call("POST", "/sessions", `{"session_id":"large"}`, http.StatusCreated, &session)
	for range messages {
		a.call("POST", "/sessions/large/messages", `{"role":"user","content":"`+strings.Repeat("x", size)+`"}`, http.StatusCreated, nil)
	}
	for _, target := range []string{"/events/stream?since_id=0000000000000000", "/events?since_id=0000000000000000&limit=5000", "/sessions/large", "/sessions/large/messages"} {
		conns := a.open(target, clients)
		memory := 0.0
		for range 3 {
			a.send()
			memory = max(memory, a.memory())
			time.Sleep(500 * time.Millisecond)
		}
		t.Logf("%d clients that do not read %s: %.0f MB", clients, target, memory/1e6)
		if memory > maxMemory {
			t.Errorf("%d clients that do not read %s take %.0f MB", clients, target, memory/1e6)
		}
		for _, c := range conns {
			c.Close()
		}
	}
}

// attack is a user of a server, and opens connections for attackers.
type attack struct {
	t      *testing.T
	url    string
	client *http.Client
}

// call makes a call of the user.
func (a *attack) call(method, path, body string, status int, answer any) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer user-token-for-tests")
	resp, err := a.client.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		a.t.Fatalf("%s %s: %s, %v: %.300s", method, path, resp.Status, err, all)
	}
	if answer != nil {
		if err := json.Unmarshal(all, answer); err != nil {
			a.t.Fatal(err)
		}
	}
}

// open makes calls whose answers nobody reads.
func (a *attack) open(target string, n int) (conns []net.Conn) {
	a.t.Helper()
	address := strings.TrimPrefix(a.url, "http://")
	for range n {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			a.t.Fatal(err)
		}
		a.t.Cleanup(func() { conn.Close() })
		_ = conn.(*net.TCPConn).SetReadBuffer(4096)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer user-token-for-tests\r\n\r\n", target, address)
		conns = append(conns, conn)
	}
	return conns
}

// send lets the user send, and waits for the reply.
func (a *attack) send() {
	a.t.Helper()
	var session loquat.Session
	var sent loquat.SendResult
	a.call("POST", "/sessions", "{}", http.StatusCreated, &session)
	a.call("POST", "/sessions/"+session.SessionID+"/send", `{"content":"hello"}`, http.StatusAccepted, &sent)
	since := sent.CursorEventID.String()
	for range 600 {
		var window struct{ Events []loquat.Event }
		a.call("GET", "/events?wait=10&session=omit&session_id="+session.SessionID+"&since_id="+since, "", http.StatusOK, &window)
		for _, e := range window.Events {
			since = e.EventID.String()
			if e.Type == loquat.RequestCompleted {
				return
			}
		}
	}
	a.t.Fatal("the user's request does not end")
}

// memory returns the server's resident memory in bytes.
func (a *attack) memory() float64 {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), "GET", a.url+"/metrics", nil)
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer user-token-for-tests")
	resp, err := a.client.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "process_resident_memory_bytes "); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				a.t.Fatal(err)
			}
			return n
		}
	}
	a.t.Fatal("/metrics does not show the memory")
	return 0
}
