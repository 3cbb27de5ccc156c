package profile

import (
	"bytes"
	"compress/gzip"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) *Server {
	t.Helper()
	s, err := Start(t.Context(), "127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

func get(t *testing.T, url string, change func(*http.Request)) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

// Each kind of profile that the documentation names can be taken and is one.
func TestProfiles(t *testing.T) {
	s := start(t)
	for _, page := range []string{"profile?seconds=1", "heap", "allocs?seconds=1", "mutex?seconds=1", "block?seconds=1", "goroutine"} {
		t.Run(page, func(t *testing.T) {
			status, body := get(t, s.URL+"/debug/pprof/"+page, nil)
			zip, err := gzip.NewReader(bytes.NewReader(body))
			if err != nil || status != 200 {
				t.Fatalf("%d %.100q: %v", status, body, err)
			}
			if text, err := io.ReadAll(zip); err != nil || len(text) == 0 {
				t.Errorf("the profile is empty: %v", err)
			}
		})
	}
	if _, body := get(t, s.URL+"/debug/pprof/goroutine?debug=2", nil); !bytes.Contains(body, []byte("profile.(*Server)")) && !bytes.Contains(body, []byte("net/http.(*Server)")) {
		t.Errorf("the goroutines lack those of this server: %.300s", body)
	}
	if status, body := get(t, s.URL+"/debug/pprof/trace?seconds=1", nil); status != 200 || !bytes.HasPrefix(body, []byte("go 1.")) {
		t.Errorf("the trace is %d %.20q", status, body)
	}
	if status, body := get(t, s.URL+"/metrics", nil); status != 200 || !bytes.Contains(body, []byte("go_sched_latencies_seconds_bucket")) {
		t.Errorf("the metrics are %d %.200s", status, body)
	}
	if status, body := get(t, s.URL+"/", nil); status != 200 || !bytes.Contains(body, []byte("goroutine?debug")) {
		t.Errorf("the index is %d %.200s", status, body)
	}
}

// Waits are recorded only while a profile of them is taken, and a profile shows them.
func TestWaitsAreRecordedOnRequest(t *testing.T) {
	s := start(t)
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() { // waits for a channel again and again
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	status, body := get(t, s.URL+"/debug/pprof/block?seconds=1", nil)
	close(stop)
	<-ended
	if zip, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
		body, _ = io.ReadAll(zip)
	}
	if status != 200 || !bytes.Contains(body, []byte("TestWaitsAreRecordedOnRequest")) {
		t.Errorf("%d: the profile of waits lacks the goroutine of this test", status)
	}
	if now := runtime.SetMutexProfileFraction(-1); now != 0 {
		t.Errorf("waits for locks are recorded at 1 in %d after the profile", now)
	}
}

// Pages of other sites cannot read profiles, nor start one.
func TestGuard(t *testing.T) {
	s := start(t)
	for _, tc := range []struct {
		name   string
		change func(*http.Request)
		want   int
	}{
		{"a tool", nil, 200},
		{"localhost", func(r *http.Request) { r.Host = "localhost:6060" }, 200},
		{"IPv6", func(r *http.Request) { r.Host = "[::1]:6060" }, 200},
		{"the address bar", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") }, 200},
		{"a link of the index", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, 200},
		{"a name that resolves to this machine", func(r *http.Request) { r.Host = "evil.example:6060" }, 403},
		{"a page of another origin", func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403},
		{"an image on another page", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
	} {
		if status, body := get(t, s.URL+"/debug/pprof/heap", tc.change); status != tc.want {
			t.Errorf("%s: %d %.100q, want %d", tc.name, status, body, tc.want)
		}
	}
}

func running(s *Server) int {
	s.waits.mu.Lock()
	defer s.waits.mu.Unlock()
	return s.waits.calls
}

func TestBounds(t *testing.T) {
	s := start(t)
	for _, page := range []string{"profile?seconds=301", "profile?seconds=-1", "mutex?seconds=x", "heap?seconds=99999999999", "trace?seconds=61"} {
		if status, body := get(t, s.URL+"/debug/pprof/"+page, nil); status != 400 || !strings.Contains(string(body), "query.seconds: must be a whole number from 0 to") {
			t.Errorf("%s: %d %s", page, status, body)
		}
	}
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	address := strings.TrimPrefix(s.URL, "http://")
	for end := time.Now().Add(15 * time.Second); running(s) < maxConnections; {
		if time.Now().After(end) {
			t.Fatalf("%d profiles run", running(s))
		}
		before := running(s)
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
		if _, err := io.WriteString(c, "GET /debug/pprof/mutex?seconds=200 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		for wait := time.Now().Add(time.Second); running(s) == before && time.Now().Before(wait); time.Sleep(time.Millisecond) {
		}
	}
	// Connections that take profiles are not closed to make room for another one.
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	answer, _ := io.ReadAll(c)
	if !bytes.Contains(answer, []byte("connections for profiles are in use")) {
		t.Errorf("%d connections at once; the last is answered %.200q", maxConnections+1, answer)
	}
}

// A profile that runs does not delay the end of the server.
func TestCloseCutsProfiles(t *testing.T) {
	s := start(t)
	done := make(chan error, 1)
	go func() {
		resp, err := http.Get(s.URL + "/debug/pprof/block?seconds=200")
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		done <- err
	}()
	for end := time.Now().Add(30 * time.Second); runtime.SetMutexProfileFraction(-1) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the profile does not begin")
		}
	}
	s.Close()
	select {
	case err := <-done:
		if err == nil {
			t.Error("the profile ended well although the server was closed")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the profile continues after the server was closed")
	}
	for end := time.Now().Add(30 * time.Second); runtime.SetMutexProfileFraction(-1) != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waits are still recorded")
		}
	}
}

func TestAddressInUse(t *testing.T) {
	s := start(t)
	_, err := Start(t.Context(), strings.TrimPrefix(s.URL, "http://"), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "--debug-listen or server.debug_listen choose another address") {
		t.Errorf("a second listener on the address: %v", err)
	}
}
